"""Statements in paragraphs: under the user's line, or under what they rematerialise."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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
    """Group statements under the user's lines, and what is re-run under a heading of its own.

    The `bodies` read the same, but for bytes; what is written is the first one.
    """
    found: list[Paragraph] = []
    group: list[Alike] = []
    source: Source | None = None

    def close() -> None:
        if group:
            lines = tuple(line for alike in group for line in _lines(alike, spell))
            found.append(Paragraph(_heading(group, spell), lines))
        group.clear()

    for alike in zip(*bodies, strict=True):
        statement = alike[0]
        again = bool(group and group[0][0].again)
        if statement.source is not None:
            new = bool(statement.again) != again or (not again and statement.source != source)
            if new:
                close()
            source = statement.source
        group.append(alike)
    close()
    return found


def _lines(alike: Alike, spell: Callable[[str], str]) -> list[str]:
    text, verb = spell(alike[0].text), alike[0].verb
    said = f"  # {verb} {sizes([s.nbytes for s in alike])}" if verb else ""
    if not text.startswith("del ") or len(text) + len(said) <= WIDTH:
        return [text + said]
    width = WIDTH - len("del ") - len(said)
    names = text.removeprefix("del ")  # one may be longer than a line: it stays whole
    lines = textwrap.wrap(names, width, break_long_words=False, break_on_hyphens=False)
    return [*(f"del {line.rstrip(',')}" for line in lines[:-1]), f"del {lines[-1]}{said}"]


def _heading(group: list[Alike], spell: Callable[[str], str]) -> str:
    again = [alike for alike in group if alike[0].again]
    if again:
        names = ", ".join(
            part.rpartition(".")[2] for s, *_ in again for part in spell(s.again).split(", ")
        )
        remade = [sum(s.remade for s in body) for body in zip(*again, strict=True)]
        return f"rematerialise {names}" + (f": {sizes(remade)}" if any(remade) else "")
    source = next((s.source for s, *_ in group if s.source is not None), None)
    return user_line(source) if source else ""
