"""Statements in paragraphs, each under the user's line."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from remat_gen.codegen.classes.reused_names import without_assignment
from remat_gen.codegen.expressions.prose import user_line
from remat_gen.codegen.statements.statements import Statement
from remat_gen.ir.byte_text import sizes
from remat_gen.ir.graph import Source

WIDTH = 92  # of a line in a method
Alike: TypeAlias = tuple[Statement, ...]  # a statement in each body


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Lines under a comment; the comment is "" where nothing is to be said."""

    comment: str
    lines: tuple[str, ...]


def paragraphs(
    bodies: Sequence[tuple[Statement, ...]], spell: Callable[[str], str]
) -> list[Paragraph]:
    """Group statements under the user's lines; what is re-run stands where it is needed.

    The `bodies` read the same, but for bytes; what is written is the first one.
    """
    found: list[Paragraph] = []
    written: list[Alike] = []
    source: Source | None = None
    for alike in zip(*bodies, strict=True):
        statement = alike[0]
        new = statement.source if source is None or not statement.again else None
        if new is not None and new != source:
            if written:
                found.append(_paragraph(source, written, spell))
            written, source = [], new
        written.append(alike)
    return [*found, _paragraph(source, written, spell)] if written else found


def _paragraph(
    source: Source | None, written: list[Alike], spell: Callable[[str], str]
) -> Paragraph:
    lines: list[str] = []
    seen: set[int] = set()  # blocks that a condition above has named
    for blocks, rows in groupby(written, key=lambda alike: alike[0].blocks):
        inner = [line for alike in rows for line in _lines(alike, spell)]
        if not blocks:
            lines += inner
            seen = set()
            continue
        seen = seen if seen.isdisjoint(blocks) else set()
        head = f"{'el' * bool(seen)}if {_condition(blocks)}:"
        seen |= {*blocks}
        rest = head.startswith("el") and len(seen) == len(written[0])
        lines += ["else:" if rest else head, *(f"    {line}" for line in inner)]
    return Paragraph(user_line(source) if source else "", tuple(lines))


def _condition(blocks: tuple[int, ...]) -> str:
    one, *others = map(str, blocks)
    return f"self.at in ({one}, {', '.join(others)})" if others else f"self.at == {one}"


def _lines(alike: Alike, spell: Callable[[str], str]) -> list[str]:
    statement = alike[0]
    nbytes = [s.nbytes for s in alike if s.nbytes]
    verb = max(s.verb for s in alike)  # "" where this body frees it in another place
    said = f"  # {verb}" if verb else ""
    said += f" {sizes(nbytes)}" if nbytes else ""
    if statement.text and 0 < len(nbytes) < len(alike):  # in the others it is freed in forward
        said += f" in {len(nbytes)} of {len(alike)}"
    if not statement.frees:
        text = spell(statement.text)
        return [(without_assignment(text) if statement.over else text) + said]
    names = ", ".join(dict.fromkeys(spell(str(mark)) for mark, _ in statement.frees))
    width = WIDTH - len("del ") - len(said)  # a name may be longer than a line: it stays whole
    *first, last = textwrap.wrap(names, width, break_long_words=False, break_on_hyphens=False)
    return [*(f"del {line.rstrip(',')}" for line in first), f"del {last}{said}"]
