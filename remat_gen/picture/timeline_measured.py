"""The memory that `verify` measured, kept for `plot`: beside the module, never committed.

It goes to a cache folder that ignores itself in git, as those of ruff, mypy and pytest do. It
belongs to one text of the module: after a change nothing of it is shown.

What is measured has its own clock, and the profiler slows small operations down. The picture shows
it on the plan's clock: the large allocations of both, which come in the same order with the same
bytes, are matched, and time is stretched between them. Bytes are as they were measured.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from remat_gen.capture.load.load import read_source
from remat_gen.ir.header import body_hash
from remat_gen.picture.timeline_owners import Residence
from remat_gen.picture.timeline_view import Curve
from remat_gen.verification.report import Report

CACHE = ".remat_gen_cache"
_SCHEMA = 1
_MATCHED = 1500  # allocations at most; the large ones


def remember(module: Path, report: Report) -> None:
    """Keep the allocations of a verified module; a folder that cannot be written keeps nothing."""
    if report.planned_peak is None or not report.planned_peak.events:
        return
    events = report.planned_peak.events
    start = events[0].time_ns
    data = {
        "schema": _SCHEMA,
        "body_sha256": body_hash(read_source(module)),
        "times_us": [(event.time_ns - start) // 1000 for event in events],
        "changes": [event.nbytes for event in events],
        "totals": [event.total_bytes for event in events],
    }
    with contextlib.suppress(OSError):
        folder = module.parent / CACHE
        folder.mkdir(exist_ok=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
        _path(module).write_text(json.dumps(data), encoding="utf-8")


def recall(module: Path, residence: Residence) -> Curve | None:
    """Return what was measured on a module, on its plan's clock; None where nothing is known."""
    try:
        data = json.loads(_path(module).read_text(encoding="utf-8"))
        known = data["schema"] == _SCHEMA and data["body_sha256"] == body_hash(read_source(module))
        if not known:
            return None
        return on_plans_clock(residence, data["times_us"], data["changes"], data["totals"])
    except (OSError, ValueError, LookupError, TypeError):  # a cache: what is broken is not there
        return None


def on_plans_clock(
    residence: Residence, times_us: list[int], changes: list[int], totals: list[int]
) -> Curve:
    """Return the totals after each event over the plan's time."""
    planned = [
        (residence.runs[min(stay.begin, len(residence.runs) - 1)].begin_us, nbytes)
        for stay in residence.stays
        if (nbytes := residence.problem.values[stay.value].nbytes)
    ]
    measured = [(t, change) for t, change in zip(times_us, changes, strict=True) if change > 0]
    anchors = _matched(planned, measured)
    at = np.interp(
        times_us,
        [0.0, *(t for _, t in anchors), float(times_us[-1])],
        [0.0, *(t for t, _ in anchors), residence.time_us],
    )
    return Curve((*at.tolist(), residence.time_us), tuple(totals))


def _matched(
    planned: list[tuple[float, int]], measured: list[tuple[int, int]]
) -> list[tuple[float, int]]:
    """Return pairs of times at which both allocate the same bytes, in order."""
    sizes = sorted((nbytes for _, nbytes in planned), reverse=True)
    least = sizes[min(_MATCHED, len(sizes)) - 1] if sizes else 0
    ours = [(t, n) for t, n in planned if n >= least]
    theirs = [(t, n) for t, n in measured if n >= least]
    pairs = common_order([n for _, n in ours], [n for _, n in theirs])
    return [(ours[i][0], theirs[j][0]) for i, j in pairs]


def common_order(ours: Sequence[int], theirs: Sequence[int]) -> list[tuple[int, int]]:
    """Return the positions of a longest common subsequence of two sequences of sizes.

    Layers repeat: what matches the longest run first (difflib) may take one layer for another, and
    then finds no partner for the layers before it.
    """
    mine, other = np.asarray(ours), np.asarray(theirs)
    longest = np.zeros((len(ours) + 1, len(theirs) + 1), dtype=np.int32)  # of the first i and j
    for i in range(len(ours)):
        taken = np.maximum(longest[i, 1:], longest[i, :-1] + (other == mine[i]))
        longest[i + 1, 1:] = np.maximum.accumulate(taken)
    pairs = []
    i, j = len(ours), len(theirs)
    while i and j:
        if longest[i, j] == longest[i - 1, j]:
            i -= 1
        elif longest[i, j] == longest[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs[::-1]


def _path(module: Path) -> Path:
    return module.parent / CACHE / f"{module.stem}.json"
