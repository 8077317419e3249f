"""What was fitted as a table of 80 columns, and as an object for programs."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.text import Text

from remat_gen.best_batch.fitting import Fit, Row
from remat_gen.ir.byte_text import size
from remat_gen.terminal.printing import number_table

_HEAD = ("batch", "budget", "eager", "planned", "time added", "samples/s", "over eager's")


def fit_table(found: Fit) -> Group:
    """Return the table, and what it says in two sentences."""
    table = number_table(*fit_rows(found))
    title = f"{found.title} on {found.device}, within {found.limit}"
    return Group(Text(title), Text(), table, Text(), *map(Text, fit_lines(found)))


def fit_rows(found: Fit) -> tuple[tuple[str, ...], list[list[str]]]:
    """Return the header and a row per batch: peaks, time beyond eager's, samples per second."""
    return _HEAD, [_cells(found, row) for row in found.rows]


def _cells(found: Fit, row: Row) -> list[str]:
    marks = "*" * (row is found.best)
    start = [f"{marks}{row.batch}", size(row.limit_bytes), size(row.eager_peak_bytes)]
    if row.peak_bytes is None or row.time_us is None:
        return [*start, "does not fit", "-", "-", "-"]
    over, added = found.relative(row), 100 * (row.time_us / row.eager_us - 1)
    return [
        *start,
        size(row.peak_bytes),
        f"{added:.1f} %",
        f"{row.samples_per_s:.4g}",
        "-" if over is None else f"× {over:.3f}",
    ]


def fit_lines(found: Fit) -> list[str]:
    """Say what is best, and how large a batch can be."""
    eager, best, largest = found.eager, found.best, found.largest.batch
    over = found.relative(best)
    first = f"* a batch of {best.batch}: {best.samples_per_s:.4g} samples/s"
    if eager is None or over is None:
        lines = [first, f"largest batch: {largest}; eager fits none of these"]
    else:
        times = f"× {largest / eager.batch:.2f}"
        lines = [
            f"{first}, {100 * (over - 1):+.1f} % over eager's largest",
            f"largest batch: eager {eager.batch}, planned {largest} ({times})",
        ]
    without = ", ".join(map(str, found.left_out))
    apart = [f"eager is without {without}: as it runs, it takes another amount"] * bool(without)
    return [*lines, *apart]


def fit_json(found: Fit) -> dict[str, Any]:
    """Return what was fitted for programs; what does not exist is null."""
    return {
        "model": found.title,
        "device": found.device,
        "limit": found.limit,
        "best": found.best.batch,
        "left_out": [str(each) for each in found.left_out],
        "largest": {
            "eager": found.eager.batch if found.eager else None,
            "planned": found.largest.batch,
        },
        "batches": [_row_json(found, row) for row in found.rows],
        "output": str(found.written.output) if found.written else None,
    }


def _row_json(found: Fit, row: Row) -> dict[str, Any]:
    over = found.relative(row) if row.time_us else None
    return {
        "batch": row.batch,
        "budget_bytes": row.limit_bytes,
        "eager_peak_bytes": row.eager_peak_bytes,
        "eager_time_us": round(row.eager_us, 3),
        "peak_bytes": row.peak_bytes,
        "time_us": None if row.time_us is None else round(row.time_us, 3),
        "samples_per_s": round(row.samples_per_s, 3) if row.time_us else None,
        "over_eager": None if over is None else round(over, 6),
    }
