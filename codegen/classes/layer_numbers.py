"""Numbers in which layers differ: rates of stochastic depth, ends of slices, what is selected.

Blocks that read the same up to a few of them are one class; each block is handed its own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from remat_gen.codegen.expressions.marks import MARK, number
from remat_gen.codegen.statements.statements import Body, Function, Statement

_MOST = 3  # names that a class is handed; beyond that it reads better with the numbers in it
_FLOAT = r"(?<![\w.])(?:\d+\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+)(?![\w.])"
_SLICED = r"(?<=[\[ ])(?P<start>\d+)(?=:)|(?<=:)(?P<stop>\d+)(?=[\],])"
_SELECTED = r"(?<=\.select\(\d, )(?P<index>\d+)(?=\))|(?<=\), \d, )(?P<selected>\d+)(?=\))"
# a mark's name may have digits in it
_MARK_OR_NUMBER = re.compile(f"{MARK.pattern}|(?P<number>{_FLOAT})|{_SLICED}|{_SELECTED}")
_HINTS = (("probability", ("bernoulli", "draw_mask", "dropout")), ("scale", ("mul", "div")))


def without_numbers(text: str) -> str:
    """Return a statement that is the same for blocks that differ in such numbers."""
    return _written(text, itertools.repeat("<number>"))


def together(bodies: Sequence[Body]) -> list[list[Body]]:
    """Return which of the bodies, the same up to numbers, are a class."""
    if len(set(_columns(bodies))) <= _MOST:
        return [list(bodies)]
    same: dict[tuple[str, ...], list[Body]] = {}
    for body in bodies:
        same.setdefault(_numbers(body), []).append(body)
    return list(same.values())


def handed(
    bodies: Sequence[Body], taken: Collection[str]
) -> tuple[tuple[Body, ...], dict[str, tuple[str, ...]]]:
    """Return bodies that are handed the numbers they differ in, and by name those of each body."""
    columns = _columns(bodies)
    names: dict[tuple[str, ...], str] = {}
    hints = [_hint(s.text, n) for s in _statements(bodies[0]) for n in _found(s.text)]
    for column, hint in zip(columns, hints, strict=True):
        if column and column not in names:
            names[column] = _free(hint, {*taken, *names.values()})
    if not names:
        return tuple(bodies), {}
    written = [
        _with(body, [str(number(names[c])) if c else n for c, n in zip(columns, own, strict=True)])
        for body, own in zip(bodies, map(_numbers, bodies), strict=True)
    ]
    return tuple(written), {name: column for column, name in names.items()}


def _columns(bodies: Sequence[Body]) -> list[tuple[str, ...]]:
    """Return for each number what each body runs it with, or ""; () where it is the same."""
    rows = zip(*map(_run_with, bodies), strict=True)
    return [row if len({*row} - {""}) > 1 else () for row in rows]


def _run_with(body: Body) -> list[str]:
    return [n[0] * s.runs_in(body.block) for s in _statements(body) for n in _found(s.text)]


def _numbers(body: Body) -> tuple[str, ...]:
    return tuple(n[0] for s in _statements(body) for n in _found(s.text))


def _statements(body: Body) -> tuple[Statement, ...]:
    return body.forward.statements + body.backward.statements


def _found(text: str) -> list[re.Match[str]]:
    if _quotes(text):
        return []
    return [found for found in _MARK_OR_NUMBER.finditer(text) if found.lastgroup]


def _written(text: str, numbers: Iterator[str]) -> str:
    """Return a statement with other numbers, which are taken in turn."""
    if _quotes(text):
        return text
    return _MARK_OR_NUMBER.sub(lambda n: next(numbers) if n.lastgroup else n[0], text)


def _quotes(text: str) -> bool:
    """Tell whether a statement has texts in it, whose numbers are none: `float("1e400")`."""
    return '"' in text or "'" in text


def _with(body: Body, numbers: Iterable[str]) -> Body:
    """Return a body with other numbers."""
    rest = iter(numbers)

    def of(function: Function) -> Function:
        statements = tuple(replace(s, text=_written(s.text, rest)) for s in function.statements)
        return replace(function, statements=statements)

    forward = of(body.forward)  # before backward: the numbers are taken in order
    return replace(body, forward=forward, backward=of(body.backward))


def _hint(text: str, found: re.Match[str]) -> str:
    hints = (hint for hint, words in _HINTS if any(w in text for w in words))
    kind = (found.lastgroup or "").replace("selected", "index")
    return next(hints, kind) if kind == "number" else kind


def _free(hint: str, taken: Collection[str]) -> str:
    names = itertools.chain([hint], (f"{hint}_{i}" for i in itertools.count(2)))
    return next(name for name in names if name not in taken)
