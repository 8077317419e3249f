"""The table above the planned forward: what each block retains and runs again."""

from __future__ import annotations

from collections.abc import Sequence

from remat_gen.codegen.classes.block_text import Writer
from remat_gen.codegen.expressions.prose import prose
from remat_gen.codegen.statements.statements import Body
from remat_gen.ir.byte_text import size

_WIDTH = 60  # of a block's name


def schedule_table(blocks: Sequence[tuple[Body, Writer]]) -> tuple[str, ...]:
    """Return the lines, a row per block in the order they run."""
    rows = [("block", "retained", "rematerialised", "retained bytes")]
    rows += [_row(body, writer) for body, writer in blocks]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return tuple(
        f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:<{widths[2]}}  {d}".rstrip() for a, b, c, d in rows
    )


def _row(body: Body, writer: Writer) -> tuple[str, str, str, str]:
    operations = body.operations
    first, last = (operations[0].name, operations[-1].name) if operations else ("", "")
    layer = writer.graph.layers.holding(first)
    last = last.removeprefix(f"{layer}.") if layer else last
    name = _clipped(prose(f"{first} … {last}" if last and last != first else first))
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
