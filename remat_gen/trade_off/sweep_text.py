"""A sweep as tables of 80 columns, and as an object for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from remat_gen.ir.byte_text import size
from remat_gen.terminal.printing import number_table
from remat_gen.trade_off.sweeping import Curve, Rival, Sweep

_COLUMNS = 10  # budgets in the table; of more, so many evenly
_NOTE = (
    "All replayed on the same graph and costs, unfused. torch.compile's backward is one function: "
    "it holds all parameter gradients to its end; its budget is a share of saved bytes, no limit "
    "of the peak."
)


def tables(found: Sweep) -> Group:
    """Return the trade-off, and what people use beside it."""
    title = (
        f"{found.title} on {found.device}: time added to eager's step, in %, "
        f"within a share of its predicted peak of {size(found.eager_peak_bytes)}"
    )
    trade_off = number_table(*trade_off_rows(found), names=1, gap=1)
    today = number_table(*rival_rows(found), names=1)
    return Group(Text(title), Text(), trade_off, Text(), today, Text(), Text(_NOTE))


def trade_off_rows(found: Sweep) -> tuple[list[str], list[list[str]]]:
    """Return the header and a row per strategy: percents of time within shares of the peak."""
    budgets = shown_budgets(found.budgets)
    shares = [f"{100 * budget / max(found.eager_peak_bytes, 1):.0f}%" for budget in budgets]
    rows = []
    for curve in found.curves:
        least = min((point.peak_bytes for point in curve.points), default=0)
        share = f"{100 * least / max(found.eager_peak_bytes, 1):.1f}%"
        rows.append([curve.strategy, *(_cell(found, curve, b) for b in budgets), share])
    return ["budget", *shares, "least"], rows


def shown_budgets(budgets: Sequence[int]) -> list[int]:
    """Return at most as many budgets as fit, the largest first."""
    if len(budgets) <= _COLUMNS:
        return list(reversed(budgets))
    last = len(budgets) - 1
    return [budgets[k * last // (_COLUMNS - 1)] for k in reversed(range(_COLUMNS))]


def _cell(found: Sweep, curve: Curve, budget_bytes: int) -> str:
    point = curve.at(budget_bytes)
    if point is None:
        return "-"
    overhead = 100 * found.overhead(point.time_us)
    return f"{overhead:.1f}" if overhead < 100 else f"{overhead:.0f}"


def rival_rows(found: Sweep) -> tuple[list[str], list[list[str]]]:
    """Return the header and a row per thing that people use."""
    ours = f"{found.curves[0].strategy} at that peak"
    header = ["what people use", "peak", "share", "time added", ours]
    rows = [
        [
            rival.name,
            size(rival.peak_bytes),
            f"{100 * rival.peak_bytes / max(found.eager_peak_bytes, 1):.0f} %",
            f"{100 * found.overhead(rival.time_us):.1f} %",
            "-" if rival.ours_us is None else f"{100 * found.overhead(rival.ours_us):.1f} %",
        ]
        for rival in found.rivals
    ]
    return header, rows


def sweep_json(found: Sweep) -> dict[str, Any]:
    """Return the sweep for programs; `overhead` is a share of eager's time."""
    return {
        "model": found.title,
        "device": found.device,
        "eager": {"peak_bytes": found.eager_peak_bytes, "time_us": round(found.eager_time_us, 3)},
        "smallest_bytes": found.budgets[0],
        "costs_reused": found.costs_reused,
        "strategies": {curve.strategy: _points_json(found, curve) for curve in found.curves},
        "today": [_rival_json(found, rival) for rival in found.rivals],
    }


def _points_json(found: Sweep, curve: Curve) -> list[dict[str, Any]]:
    return [
        {
            "budget_bytes": point.budget_bytes,
            "peak_bytes": point.peak_bytes,
            "time_us": round(point.time_us, 3),
            "overhead": round(found.overhead(point.time_us), 6),
            "found_by": point.found_by,
            "optimal": point.optimal,
        }
        for point in curve.points
    ]


def _rival_json(found: Sweep, rival: Rival) -> dict[str, Any]:
    ours = None if rival.ours_us is None else round(found.overhead(rival.ours_us), 6)
    return {
        "name": rival.name,
        "activation_memory_budget": rival.ratio,
        "peak_bytes": rival.peak_bytes,
        "time_us": round(rival.time_us, 3),
        "overhead": round(found.overhead(rival.time_us), 6),
        f"{found.curves[0].strategy}_overhead_at_that_peak": ours,
    }
