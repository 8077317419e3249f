"""The records as a page of Markdown: the counts first, what is not ok next, then all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from record import Record, Status

_HEAD = """\
# Models that nobody here wrote

Small configurations with random weights on {device}, planned at 60 % of eager's replayed peak and
run beside eager for two steps (`nox -s zoo`). *Equal* is about outputs, every gradient, buffers,
inputs and the random state; *off by* is the measured minus the predicted activation peak, *time*
the replayed time over that of nothing run again. Where 60 % is infeasible, as it is for a few
layers with large weights, the smallest feasible budget was asked for. A row is ok if all of this
is equal, the measured peak within the budget, and the prediction off by at most 1 % or 64 KiB.
"""
NEAR = 0.02  # the promise about eager's predicted peak
_COLUMNS = ("model", "kind", "operations", "budget", "off by", "time", "equal", "result")


def page(records: Sequence[Record], listed: int, device: str = "cpu") -> str:
    """Return the page; `listed` is how many models there are to run."""
    head = _HEAD.format(device="the CPU" if device == "cpu" else device)
    ordered = sorted(records, key=lambda r: (r.library, r.kind, r.name))
    strategies = ", ".join(sorted({record.strategy for record in records}))
    ran = f"Ran {len(records)} of {listed}, strategy {strategies}.\n"
    parts = [head, ran, _counts(ordered), _eager(ordered), open_rows(ordered)]
    for library, members in groupby(ordered, key=lambda r: r.library):
        parts.append(f"## {library}\n\n{markdown(_COLUMNS, map(_row, members))}")
    return "\n".join(part for part in parts if part)


def _counts(records: Sequence[Record]) -> str:
    head = ("part", "ran", *Status, "share ok", "at 60 %", "bitwise")
    return markdown(head, _count_rows(records))


def _count_rows(records: Sequence[Record]) -> Iterator[tuple[str, ...]]:
    libraries = sorted({record.library for record in records})
    for library in (*libraries, ""):
        members = [r for r in records if library in ("", r.library)]
        counts = [sum(r.status is status for r in members) for status in Status]
        share = 100 * counts[0] / max(1, len(members))
        asked = sum(r.status is Status.OK and not r.notes for r in members)
        bitwise = sum(r.equal == "bitwise" for r in members)
        cells = (len(members), *counts, f"{share:.0f} %", asked, bitwise)
        yield (library or "all", *map(str, cells))


def _eager(records: Sequence[Record]) -> str:
    """Return how well eager's own peak was predicted, where both are known; "" where none is."""
    known = [(off, r.key) for r in records if (off := r.eager_off) is not None]
    if not known:
        return ""
    near = sum(off <= NEAR for off, _ in known)
    said = f"Eager's predicted peak is within {NEAR:.0%} of the measured one for {near} of"
    far = [f"{key} ({off:.1%})" for off, key in sorted(known, reverse=True) if off > NEAR]
    return f"{said} {len(known)} models{': not for ' if far else ''}{', '.join(far)}.\n"


def open_rows(records: Sequence[Record]) -> str:
    """Return a table of what is not ok, and why; "" where all is."""
    rows = [(r.key, r.status.value, _cell(r.error)) for r in records if r.status is not Status.OK]
    return f"## Not ok\n\n{markdown(('model', 'result', 'why'), rows)}" if rows else ""


def _row(record: Record) -> tuple[str, ...]:
    if not record.measured_bytes:
        return (record.name, record.kind, *[""] * 5, record.status.value)
    return (
        record.name,
        record.kind,
        str(record.operations),
        f"{record.share:.0f} %",
        f"{record.off_bytes:,} B",
        f"{record.time_ratio:.3f}",
        record.equal or "no",
        record.status.value,
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def markdown(head: Sequence[str], rows: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> str:
    """Return a table whose columns line up."""
    table = [tuple(map(str, head)), *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    table.insert(1, tuple("-" * width for width in widths))
    lines = (
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    )
    return "".join(f"| {line} |\n" for line in lines)
