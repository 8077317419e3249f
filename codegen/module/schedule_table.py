"""The table above the planned forward: what each block retains and runs again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from remat_gen.codegen.classes.block_text import Writer
from remat_gen.codegen.expressions.counted_lines import NUMBER, repeats
from remat_gen.codegen.expressions.prose import prose
from remat_gen.codegen.statements.statements import Body
from remat_gen.ir.byte_text import size

_WIDTH = 60  # of a block's name
_Row: TypeAlias = tuple[str, str, str, str]


def schedule_table(blocks: Sequence[tuple[Body, Writer]]) -> tuple[str, ...]:
    """Return the lines in the order they run: a row per block, or for alike ones of a list."""
    rows = [("block", "retained", "rematerialised", "retained bytes")]
    rows += _together([_row(body, writer) for body, writer in blocks])
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return tuple(
        f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:<{widths[2]}}  {d}".rstrip() for a, b, c, d in rows
    )


def _together(rows: Sequence[_Row]) -> Iterator[_Row]:
    """Yield the rows, one for all that say the same of the members of a list."""
    lines = [(f"{NUMBER.sub('*', name)} {said}", _numbers(name)) for name, *said in rows]
    for repeat in repeats(lines):
        for i, rises in enumerate(repeat.rises, repeat.first):
            name, retained, again, nbytes = rows[i]
            each = " each" * (repeat.times > 1 and nbytes != "-")
            yield _clipped(_members(name, rises, repeat.times)), retained, again, nbytes + each


def _members(name: str, rises: Iterable[int], times: int) -> str:
    """Write of which members of a list a name is meant."""
    spans = (_span(n, rise, times) for n, rise in zip(_numbers(name), rises, strict=False))
    return NUMBER.sub(lambda _: next(spans), name) if times > 1 else name


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(map(int, NUMBER.findall(name)))


def _span(first: int, rise: int, times: int) -> str:
    """Write the members of a list that are meant: `3`, `0-11`, every other one as `0,2-10`."""
    more = f",{first + rise}" if rise > 1 else ""
    return f"{first}{more}-{first + rise * (times - 1)}" if rise else str(first)


def _row(body: Body, writer: Writer) -> _Row:
    operations = body.operations
    first, last = (operations[0].name, operations[-1].name) if operations else ("", "")
    layer = writer.graph.layers.holding(first)
    last = last.removeprefix(f"{layer}.") if layer else last
    name = prose(f"{first} … {last}" if last and last != first else first)
    retained, again = shorten(writer.retained()), shorten(writer.rematerialised())
    nbytes = sum(s.retained for s in body.forward.statements)
    return name, retained, again, size(nbytes) if nbytes else "-"


def _clipped(name: str) -> str:
    """Return a block's name for a cell of the table: a long one says how its end begins."""
    return name if len(name) <= _WIDTH else f"{name[: _WIDTH - 1].rstrip(' …')}…"


def shorten(names: list[str], width: int = 30) -> str:
    """Return names for a cell of the table; a long list says how many more there are."""
    if not names:
        return "-"
    for count in range(len(names), 0, -1):
        rest = f" + {len(names) - count} more" if len(names) > count else ""
        text = ", ".join(names[:count]) + rest
        if len(text) <= width:
            return text
    return f"{len(names)} values"
