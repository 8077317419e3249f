"""Torch's symbolic sizes to sizes of the graph."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions as torch_functions

from remat_gen.ir.errors import UnwrittenSizeError
from remat_gen.ir.size import LENGTH, Length, Operand, Size, evaluate, lengths_in

_OPERATORS: Mapping[type, str] = {
    sympy.Add: "+",
    sympy.Mul: "*",
    torch_functions.FloorDiv: "//",
    torch_functions.CleanDiv: "//",
    torch_functions.PythonMod: "%",
    torch_functions.Mod: "%",
    torch_functions.IntTrueDiv: "/",
    torch_functions.FloatTrueDiv: "/",
    torch_functions.ToFloat: "float",
    torch_functions.TruncToInt: "int",
    torch_functions.FloorToInt: "math.floor",
    torch_functions.CeilToInt: "math.ceil",
    torch_functions.FloatPow: "**",
    torch_functions.OpaqueUnaryFn_sqrt: "math.sqrt",
    torch_functions.OpaqueUnaryFn_log2: "math.log2",
    torch_functions.Min: "min",
    torch_functions.Max: "max",
    sympy.Min: "min",
    sympy.Max: "max",
}
# What a trace computes numbers by, in the order of the user's own arithmetic.
_FUNCTIONS: Mapping[Callable[..., Any], str] = {
    operator.add: "+",
    operator.mul: "*",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.truediv: "/",
    torch.sym_float: "float",
    torch.sym_int: "int",
    math.trunc: "int",
    math.floor: "math.floor",
    math.ceil: "math.ceil",
    torch.sym_min: "min",
    torch.sym_max: "max",
}
_POWERS = (sympy.Pow, torch_functions.PowByNatural)
_ROUNDED = (torch_functions.TruncToInt, torch_functions.FloorToInt, torch_functions.CeilToInt)
_REGROUPED = (sympy.Add, sympy.Mul)  # sympy reorders their operands, which rounds otherwise
_SHORT = 8  # binary digits of a factor (1.25 has three) by which whole numbers stay exact


@dataclass(frozen=True, slots=True)
class Sizes:
    """Translates symbolic numbers of one trace; `names` has the lengths by torch's symbol.

    `nodes` are those that compute a number in the trace: in an order that torch's expressions lose.
    """

    names: Mapping[sympy.Symbol, str]
    lengths: dict[str, Length]
    nodes: Mapping[sympy.Basic, torch.fx.Node] = field(default_factory=dict)

    def size(self, number: torch.SymInt | torch.SymFloat) -> Size | int | float:
        """Translate a symbolic number.

        Raises:
            UnwrittenSizeError: it depends on values of tensors, or on arithmetic that has no place
                here.
        """
        expression = number.node.expr.replace(lambda e: isinstance(e, _ROUNDED), _exact)
        translated = self._operand(expression)
        if isinstance(translated, str):
            return Size(LENGTH, (translated,), self.lengths[translated].maximum)
        if isinstance(translated, Size) and translated.value != number.node.hint:
            raise self._refused(expression)
        self._leave_out_zeros(translated)
        return translated

    def _leave_out_zeros(self, number: Operand) -> None:
        """Let lengths begin where no number is divided by zero: a variance is, of one row."""
        for name in lengths_in(number):
            length = self.lengths[name]
            smallest = next(
                n
                for n in range(length.minimum, length.maximum + 1)
                if self._is_defined(number, name, n)
            )
            self.lengths[name] = replace(length, minimum=smallest)

    def _is_defined(self, number: Operand, name: str, length: int) -> bool:
        try:
            evaluate(number, self._example() | {name: length})
        except ZeroDivisionError:
            return False
        return True

    def _operand(self, expression: sympy.Basic) -> Operand:
        if isinstance(expression, sympy.Integer):
            return int(expression)
        if isinstance(expression, sympy.Float):
            return float(expression)
        if isinstance(expression, sympy.Symbol):
            if expression not in self.names:
                raise UnwrittenSizeError(
                    "the shape of a tensor depends on the values of another: use torch.where, a "
                    "mask, or a fixed size"
                )
            return self.names[expression]
        return self._of_operator(expression)

    def _of_operator(self, expression: sympy.Basic) -> Size:
        operands = tuple(map(self._operand, expression.args))
        if isinstance(expression, _POWERS) and isinstance(operands[1], int) and operands[1] > 0:
            return self._made("**", operands)
        operator = _OPERATORS.get(type(expression))
        inexact = any(isinstance(self._number(item), float) for item in operands)
        whole = isinstance(expression, sympy.Add) and all(map(_is_whole, operands))
        if inexact and not whole and isinstance(expression, _REGROUPED):
            return self._in_order(expression)
        if operator is None:
            raise self._refused(expression)
        if isinstance(expression, sympy.Add):
            operands = tuple(sorted(operands, key=lambda item: isinstance(item, int | float)))
        return self._made(operator, operands)

    def _in_order(self, expression: sympy.Basic) -> Size:
        """Translate what sympy regroups in the order in which the trace computes it.

        The same number may be computed in several orders, of which torch keeps one: they are equal
        where none of them rounds.

        Raises:
            UnwrittenSizeError: one is not, or no node computes it.
        """
        node = self.nodes.get(expression)
        found = None
        if node is not None and node.target in _FUNCTIONS and _is_exact(node):
            found = self._of_node(node)  # a node of another kind has the same expression again
        if isinstance(found, Size):
            return found
        raise UnwrittenSizeError(
            f"a size follows from {expression}, where rounding depends on the order: compute it of "
            "whole numbers, as 7 * n // 10"
        )

    def _of_node(self, node: Any) -> Operand:
        if isinstance(node, int | float):
            return node
        if node.target not in _FUNCTIONS:
            return self._operand(node.meta["val"].node.expr)
        return self._made(_FUNCTIONS[node.target], tuple(map(self._of_node, node.args)))

    def _made(self, operator: str, operands: tuple[Operand, ...]) -> Size:
        return Size(operator, operands, evaluate(Size(operator, operands, 0), self._example()))

    def _number(self, operand: Operand) -> int | float:
        return evaluate(operand, self._example())

    def _example(self) -> dict[str, int]:
        return {name: length.maximum for name, length in self.lengths.items()}

    def _refused(self, expression: sympy.Basic) -> UnwrittenSizeError:
        return UnwrittenSizeError(
            f"the arithmetic on a size cannot be written as source: {expression}"
        )


def _is_exact(node: torch.fx.Node) -> bool:
    """Tell whether a number is computed by short factors (1.25, not 0.7) and halves alone."""
    if node.target not in _FUNCTIONS:
        return True
    if node.target is operator.truediv and _digits(node.args[1]) != 1:
        return False
    factors = [a for a in node.args if isinstance(a, float)]
    return all(map(_is_exact, node.all_input_nodes)) and all(_digits(f) <= _SHORT for f in factors)


def _digits(number: object) -> int:
    """Return how many binary digits a number has between its first and its last one."""
    if not isinstance(number, int | float) or not math.isfinite(number):
        return _SHORT + 1
    above, _ = number.as_integer_ratio()
    return (abs(above) // (above & -above)).bit_length() if above else 0


def _is_whole(operand: Operand) -> bool:
    """Tell whether a number is a whole one at all lengths: sums of those are not rounded."""
    if isinstance(operand, Size):
        return operand.operator == "float" or isinstance(operand.value, int)
    return not isinstance(operand, float) or operand.is_integer()


def _exact(rounded: sympy.Basic) -> sympy.Basic:
    """Return `batch` for `int(4 * batch / 4)`: a whole quotient is exact in floating point, too."""
    quotient = rounded.args[0]
    if not isinstance(quotient, (torch_functions.FloatTrueDiv, torch_functions.IntTrueDiv)):
        return rounded
    above, below = quotient.args
    number = above.args[0] if isinstance(above, torch_functions.ToFloat) else above
    if not below.is_number or not float(below).is_integer():
        return rounded
    exact = number / sympy.Integer(int(below))
    return exact if exact.is_integer else rounded
