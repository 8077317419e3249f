"""The records of units as a page of Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from record import Record, Status
from table import markdown, open_rows

_HEAD = """\
# Units of models that cannot be planned as a whole

Small configurations with random weights on the CPU (`nox -s zoo -- units --budget 65%`), planned by
`--units auto`: layers, or what is inside them, with all else left eager. *Planned* is the share of
what backward needs that lies in units, *peak* the measured activation peak over eager's, *off by*
the measured minus the predicted one, *time* the predicted time over that of nothing run again.
*Equal* is about outputs, every gradient, buffers, inputs and the random state of two steps.
"""
_COLUMNS = ("model", "units", "planned", "peak", "off by", "time", "equal", "result")


def unit_page(records: Sequence[Record], listed: int) -> str:
    """Return the page; `listed` is how many models there are to run."""
    ok = [r for r in records if r.status is Status.OK]
    low = sum(r.equal == "bitwise" and r.measured_bytes <= 0.7 * r.eager_bytes for r in ok)
    ran = (
        f"Ran {len(records)} of {listed}: {len(ok)} ok, {low} of them to the bit at no more than "
        "70 % of eager's measured peak.\n"
    )
    parts = [_HEAD, ran, open_rows(records), markdown(_COLUMNS, [_row(r) for r in records])]
    return "\n".join(part for part in parts if part)


def _row(record: Record) -> tuple[str, ...]:
    if not record.measured_bytes:
        return (record.name, *[""] * 6, record.status.value)
    return (
        record.name,
        ", ".join(f"`{pattern}`" for pattern in record.units),
        f"{100 * record.planned_share:.0f} %",
        f"{100 * record.measured_bytes / record.eager_bytes:.1f} %",
        f"{record.off_bytes:,} B",
        f"{record.time_ratio:.3f}",
        record.equal or "no",
        record.status.value,
    )
