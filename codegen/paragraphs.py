"""Statements in paragraphs: under the user's line, or under what they rematerialise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from remat_gen.codegen.prose import user_line
from remat_gen.codegen.sizes import size
from remat_gen.codegen.statements import Statement
from remat_gen.ir.graph import Source


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Lines under a comment; the comment is "" where nothing is to be said."""

    comment: str
    lines: tuple[str, ...]


def paragraphs(statements: tuple[Statement, ...], spell: Callable[[str], str]) -> list[Paragraph]:
    """Group statements under the user's lines, and what is re-run under a heading of its own."""
    found: list[Paragraph] = []
    lines: list[str] = []
    group: list[Statement] = []
    source: Source | None = None

    def close() -> None:
        if lines:
            found.append(Paragraph(_heading(group, spell), tuple(lines)))
        lines.clear()
        group.clear()

    for statement in statements:
        again = bool(group and group[0].again)
        if statement.source is not None:
            new = bool(statement.again) != again or (not again and statement.source != source)
            if new:
                close()
            source = statement.source
        group.append(statement)
        comment = f"  # {statement.comment}" if statement.comment else ""
        lines.append(spell(statement.text) + comment)
    close()
    return found


def _heading(group: list[Statement], spell: Callable[[str], str]) -> str:
    again = [s for s in group if s.again]
    if again:
        names = ", ".join(
            part.rpartition(".")[2] for s in again for part in spell(s.again).split(", ")
        )
        nbytes = sum(s.nbytes for s in again)
        return f"rematerialise {names}" + (f": {size(nbytes)}" if nbytes else "")
    source = next((s.source for s in group if s.source is not None), None)
    return user_line(source) if source else ""
