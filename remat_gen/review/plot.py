"""From a generated module to the picture of its memory timeline."""

from __future__ import annotations

from pathlib import Path

from remat_gen.picture.timeline_measured import recall
from remat_gen.picture.timeline_owners import residence_of
from remat_gen.picture.timeline_view import TimelineView, timeline_view
from remat_gen.review.retrace import Retraced, retrace_file


def view_file(path: Path, rung: str | None = None) -> TimelineView:
    """Return what is to be seen of a generated module, with what `verify` measured if it ran.

    Of a `rung` it is the longest step that it admits, as planned.
    """
    return view_of(retrace_file(path, rung))


def view_of(retraced: Retraced) -> TimelineView:
    """Return what is to be seen of a schedule on its graph."""
    path, plan, rung = retraced.existing.path, retraced.existing.plan, retraced.rung
    schedule = retraced.schedule
    return timeline_view(
        retraced.traced.graph,
        retraced.problem,
        schedule,
        plan.asked.budget_bytes,
        title=f"{path.name}, {rung}" if rung else path.name,
        root=type(retraced.loaded.model).__name__,
        measured=None if rung else recall(path, residence_of(retraced.problem, schedule)),
        rung=rung,
    )
