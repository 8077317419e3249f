"""Numbers that follow from the lengths of the inputs' dimensions: `8 * batch`.

    size ::= Size(operator, operands)     operand ::= size | int | float | str (only of "length")

Sizes stand in the arguments of operations and views where a plan is for every smaller batch too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from remat_gen.ir.errors import GraphError

LENGTH = "length"  # the operator of a size that is the length of a dimension, by name
Operand: TypeAlias = "Size | int | float | str"


@dataclass(frozen=True, slots=True)
class Size:
    """An operator applied to operands; `value` is the number for the example's lengths."""

    operator: str
    operands: tuple[Operand, ...]
    value: int | float


class Shape(tuple["Size | int", ...]):
    """A `torch.Size` of which some numbers follow from lengths."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Length:
    """A length that may vary from step to step: `name`, and what it may be.

    `dims` are the dimensions that have it: the access to an input (`ids`, `batch['mask']`), and
    which of its dimensions. `maximum` is the example's.
    """

    name: str
    minimum: int
    maximum: int
    dims: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        """Return `batch <= 8`, or with another minimum than 1 `2 <= batch <= 8`."""
        low = f"{self.minimum} <= " if self.minimum > 1 else ""
        return f"{low}{self.name} <= {self.maximum}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape, strides and offset of a tensor, of which some vary."""

    shape: tuple[Size | int, ...]
    stride: tuple[Size | int, ...]
    offset: Size | int


_INFIX: Mapping[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "/": lambda a, b: a / b,
    "**": lambda a, b: a**b,
}
_CALLS: Mapping[str, Callable[..., float]] = {
    "min": min,
    "max": max,
    "float": float,
    "int": int,
    "math.floor": math.floor,
    "math.ceil": math.ceil,
    "math.sqrt": math.sqrt,
    "math.log2": math.log2,
}
_BINDING = {"+": 1, "*": 2, "//": 2, "%": 2, "/": 2, "**": 3}


def lengths_in(operand: object) -> Iterator[str]:
    """Yield the names of the lengths in a size, or in a tuple that holds some, in order."""
    if isinstance(operand, tuple):
        for item in operand:
            yield from lengths_in(item)
    elif isinstance(operand, Size):
        for item in operand.operands:
            yield from (item,) if isinstance(item, str) else lengths_in(item)


def evaluate(operand: Operand, lengths: Mapping[str, int]) -> int | float:
    """Return the number that a size is for given lengths.

    Raises:
        GraphError: it has an operator that is unknown.
    """
    if isinstance(operand, str):
        return lengths[operand]
    if not isinstance(operand, Size):
        return operand
    numbers = [evaluate(item, lengths) for item in operand.operands]
    if operand.operator == LENGTH:
        return numbers[0]
    if operand.operator in _CALLS:
        return _CALLS[operand.operator](*numbers)
    if operand.operator not in _INFIX:
        raise GraphError(f"a size has an unknown operator {operand.operator!r}")
    result, *rest = numbers
    for number in rest:
        result = _INFIX[operand.operator](result, number)
    return result


def evaluate_all(value: Any, lengths: Mapping[str, int]) -> Any:
    """Return a plain value, or a tuple of some, for given lengths."""
    if isinstance(value, tuple):
        return tuple(evaluate_all(item, lengths) for item in value)
    return evaluate(value, lengths) if isinstance(value, Size) else value


def may_fall(operand: object) -> bool:
    """Tell whether a size may be the larger the shorter the lengths are: `9 - batch` is."""
    if not isinstance(operand, Size):
        return False
    first, *rest = operand.operands
    numbers = [item for item in operand.operands if isinstance(item, (int, float))]
    falls = {
        "*": any(number < 0 for number in numbers),
        "//": any(lengths_in(tuple(rest))),
        "/": any(lengths_in(tuple(rest))),
        "%": True,
        "**": any(number < 0 for number in numbers),
    }
    return falls.get(operand.operator, False) or any(map(may_fall, (first, *rest)))


def divisor(operand: Operand) -> int:
    """Return a number by which a size can be divided whatever the lengths are: 8 of `8 * batch`."""
    if isinstance(operand, int):
        return abs(operand)
    if not isinstance(operand, Size):
        return 1
    if operand.operator == "*":
        return math.prod(map(divisor, operand.operands))
    if operand.operator == "+":
        return math.gcd(*map(divisor, operand.operands))
    return 1


def write(operand: Operand, name_of: Callable[[str], str]) -> str:
    """Return a size as Python: `8 * batch`, `(batch + 1) // 2`."""
    if isinstance(operand, str):
        return name_of(operand)
    if not isinstance(operand, Size):
        return repr(operand)
    operator, operands = operand.operator, operand.operands
    if operator == LENGTH:
        return write(operands[0], name_of)
    if operator in _CALLS:
        return f"{operator}({', '.join(write(item, name_of) for item in operands)})"
    first, *rest = operands
    # floats are added in the order that was traced: another one rounds otherwise
    regroup = operator in "+*" and all(map(_is_whole, operands))
    text = _inside(first, operator, name_of, last=False)
    for item in rest:
        opposite = _opposite(item) if operator == "+" else None
        sign, item = (operator, item) if opposite is None else ("-", opposite)
        text += f" {sign} {_inside(item, operator, name_of, last=True, regroup=regroup)}"
    return text


def _opposite(item: Operand) -> Operand | None:
    """Return what is subtracted where a term is negative: a number, or a product with one first."""
    if isinstance(item, int):
        return -item if item < 0 else None
    if not isinstance(item, Size) or item.operator != "*":
        return None
    first, *rest = item.operands
    if not isinstance(first, int) or first >= 0:
        return None
    operands = (*rest,) if first == -1 else (-first, *rest)
    return operands[0] if len(operands) == 1 else replace(item, operands=operands)


def _is_whole(operand: Operand) -> bool:
    return not isinstance(operand.value if isinstance(operand, Size) else operand, float)


def _inside(
    operand: Operand,
    operator: str,
    name_of: Callable[[str], str],
    *,
    last: bool,
    regroup: bool = False,
) -> str:
    """Write an operand, in parentheses where it binds less than the operator it stands under."""
    text = write(operand, name_of)
    if isinstance(operand, Size):
        binds = _BINDING.get(operand.operator, 9)
        bare = binds > _BINDING[operator] or (
            operator == operand.operator and operator in "+*" and (regroup or not last)
        )
        return text if bare else f"({text})"
    negative = isinstance(operand, int | float) and operand < 0
    return f"({text})" if negative and (last or operator == "**") else text
