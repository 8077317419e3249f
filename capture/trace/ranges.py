"""For which lengths a symbolic trace holds: torch guards each decision that one took part in.

The lengths from the example's downwards for which all guards hold are those that the plan is for.
Two kinds of guards do not count, as their outcome does not matter to what is computed: how a
reshape that cannot be a view is done for a length of 1, and which convolution is picked, which the
operator does again when it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import sympy
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from remat_gen.capture.refuse.places import place_of
from remat_gen.capture.values import looking
from remat_gen.ir.errors import TraceError
from remat_gen.ir.size import Length

_Guard: TypeAlias = Any  # torch.fx.experimental.symbolic_shapes.ShapeGuard
_KERNEL_CHOICES = frozenset({"conv"})  # functions of torch._subclasses.fake_impls
_OPERATORS = frozenset({"run_node", "functional_call"})  # of torch, below which C++ decides
_LOOKS = looking.__file__  # stands before each operator where Dynamo does not trace
_PLACE = re.compile(r"([^\s/]+):(\d+) in ")


def settled(
    lengths: Iterable[Length],
    shapes: ShapeEnv,
    symbols: Mapping[sympy.Symbol, str],
    squeezes: bool,
) -> tuple[Length, ...]:
    """Return lengths with the smallest that all guards of a trace hold for.

    `squeezes` tells whether the traced step squeezes a dimension that varies.

    Raises:
        TraceError: a length is pinned, or depends on another one; the message has the user's line.
    """
    guards = [guard for guard in shapes.guards if not _picks_a_kernel(guard)]
    guards = [guard for guard in guards if not _always_holds(guard, symbols)]
    found = tuple(lengths)
    related = _related(guards, symbols, found)
    return tuple(
        _settle(length, guards, shapes, symbols, squeezes or length.name in related)
        for length in found
    )


def _settle(
    length: Length,
    guards: list[_Guard],
    shapes: ShapeEnv,
    symbols: Mapping[sympy.Symbol, str],
    squeezes: bool,
) -> Length:
    own = [symbol for symbol, name in symbols.items() if name == length.name]
    mine = [guard for guard in guards if not guard.expr.free_symbols.isdisjoint(own)]
    minimum = 2 if squeezes else length.minimum  # torch asks no guard there
    for guard in mine:
        low = next(
            (n for n in range(length.maximum, 0, -1) if not _holds(guard, n, own, shapes)), 0
        )
        if low == 1 and _is_of_an_operator(guard):
            continue
        if low >= length.maximum - 1:
            raise _pinned(length, guard)
        minimum = max(minimum, low + 1)
    return replace(length, minimum=minimum)


def _holds(guard: _Guard, number: int, own: list[sympy.Symbol], shapes: ShapeEnv) -> bool:
    values = dict(values_of(shapes)) | dict.fromkeys(own, sympy.Integer(number))
    try:
        return bool(guard.expr.xreplace({s: values[s] for s in guard.expr.free_symbols}))
    except ZeroDivisionError:  # there is no such length: `x[1:]` of one, taken modulo
        return False


def _always_holds(guard: _Guard, symbols: Mapping[sympy.Symbol, str]) -> bool:
    """Tell whether a guard follows from what the dimensions of one length have in common.

    As that logits and targets have as many rows, `batch * length` each, flattened for a loss.
    """
    of_length = {name: symbol for symbol, name in symbols.items()}
    one = {symbol: of_length[name] for symbol, name in symbols.items()}
    return bool(guard.expr.xreplace(one) == sympy.true)


def _related(
    guards: list[_Guard], symbols: Mapping[sympy.Symbol, str], lengths: tuple[Length, ...]
) -> set[str]:
    """Return the lengths that are compared with one another, but for 1 always with one result.

    So BatchNorm asks whether batch times length is 1.

    Raises:
        TraceError: what a comparison gives depends on them.
    """
    most = {length.name: length.maximum for length in lengths}
    related: set[str] = set()
    for guard in guards:
        names = {symbols[s] for s in guard.expr.free_symbols if s in symbols}
        if len(names) < 2:
            continue
        within = {
            s: ValueRanges(2, most[symbols[s]]) for s in guard.expr.free_symbols & set(symbols)
        }
        if bound_sympy(guard.expr, within) != ValueRanges.wrap(sympy.true):
            listed = " and ".join(sorted(names))
            raise TraceError(
                f"{_place(guard)}forward compares two lengths that vary: {listed}; let one of "
                "them vary alone"
            )
        related |= names
    return related


def _picks_a_kernel(guard: _Guard) -> bool:
    return getattr(guard.sloc.framework_loc, "name", "") in _KERNEL_CHOICES


def _is_of_an_operator(guard: _Guard) -> bool:
    frame = guard.sloc.framework_loc
    return getattr(frame, "name", "") in _OPERATORS or getattr(frame, "filename", "") == _LOOKS


def _pinned(length: Length, guard: _Guard) -> TraceError:
    dims = ", ".join(f"{path}:{dim}" for path, dim in length.dims)
    if length.maximum == 2:
        return TraceError(
            f"a {length.name} of 1 is the only one below the example's, and forward goes otherwise "
            f"there ({dims}): give an example of 3 or more"
        )
    number = isinstance(guard.expr, sympy.Eq) and guard.expr.rhs.is_number
    makes = (
        "; len(x), int(), float(), str() and math make a number of a length (write x.shape[0], "
        "and n ** 0.5 for a root), a loop over one has as many rounds"
    )
    hint = makes if number else ""
    return TraceError(
        f"{_place(guard)}forward works for a {length.name} of {length.maximum} alone, or does "
        f"something else for smaller ones ({dims}){hint}"
    )


def _place(guard: _Guard) -> str:
    """Return `net.py:12: `, the user's line behind a guard, or "" where none is known."""
    frame = guard.sloc.framework_loc
    found = _PLACE.search(guard.sloc.maybe_user_loc or "")
    if found:
        return f"{found[1]}:{found[2]}: "
    known = frame is not None and not isinstance(frame, str)
    place = place_of([(frame.filename, frame.lineno or 0)] if known else [])
    return f"{place}: " if str(place) else ""


def values_of(shapes: ShapeEnv) -> Mapping[sympy.Symbol, sympy.Integer]:
    """Return the example's number for each symbol; torch 2.11 calls it otherwise."""
    found = getattr(shapes, "backed_var_to_val", None)
    return found if found is not None else shapes.var_to_val
