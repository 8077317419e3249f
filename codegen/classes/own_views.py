"""Views that some blocks need and that change nothing in others: those can be written for all.

A sum of gradients is begun by a product of matrices, `[B * T, C]`, and added to as `[B, T, C]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from remat_gen.codegen.expressions.marks import MARK, Mark, find, written
from remat_gen.codegen.statements.statements import Statement
from remat_gen.ir.graph import Graph

_SIZES = r"(?:[^()]|\([^()]*\))*"
_VIEWED = re.compile(rf"as_rows\({MARK.pattern}\)|{MARK.pattern}(?:\.view\({_SIZES}\))?")
_AS_ROWS = "as_rows(…)"


class DiffersError(Exception):
    """Two classes are not one."""


def without_views(text: str) -> str:
    """Return a text without the views of other shapes."""
    return _VIEWED.sub(lambda found: str(find(found[0])[0]), text)


def with_views(
    ours: Sequence[Statement], theirs: Sequence[Statement], graph: Graph
) -> tuple[tuple[Statement, ...], tuple[Statement, ...]]:
    """Return lines of two classes, equal but for views, with the views of both.

    Raises:
        DiffersError: such a view is not of the shape that the other class's tensor has.
    """
    views: list[str] = []
    for one, other in zip(_views(ours[0].text), _views(theirs[0].text), strict=True):
        view = one[1] if one[1] != "…" else other[1]
        if any(
            own != view and not _is_itself(mark, own, view, graph) for mark, own in (one, other)
        ):
            raise DiffersError
        views.append(view)
    return tuple(map(_writer(views), ours)), tuple(map(_writer(views), theirs))


def _views(text: str) -> Iterator[tuple[Mark, str]]:
    """Yield what is viewed, and how: `….view(2, 64)`, `as_rows(…)`, or `…` as it is."""
    for found in _VIEWED.finditer(text):
        (mark,) = find(found[0])[:1]
        yield mark, found[0].replace(str(mark), "…", 1)


def _is_itself(mark: Mark, own: str, view: str, graph: Graph) -> bool:
    """Tell whether a variable, read as it is, is the same through a view."""
    tensor = graph.tensors.get(mark.name)
    if own != "…" or tensor is None or tensor.storage != mark.name:
        return False
    layout = graph.layouts.get(mark.name)
    shape = layout.shape if layout else tensor.shape
    itself = {f"….view({', '.join(map(written, shape))})", *[_AS_ROWS] * (len(shape) == 2)}
    return mark.kind in ("value", "kept") and view in itself


def _writer(views: Sequence[str]) -> Callable[[Statement], Statement]:
    def write(statement: Statement) -> Statement:
        rest = iter(views)
        text = _VIEWED.sub(
            lambda found: next(rest).replace("…", str(find(found[0])[0]), 1), statement.text
        )
        return replace(statement, text=text)

    return write
