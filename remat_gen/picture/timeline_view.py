"""What the picture of a timeline shows: numbers and labels, before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat_gen.ir.byte_text import size
from remat_gen.ir.graph import Graph
from remat_gen.ir.rung import Rung
from remat_gen.picture.timeline_bands import Band, bands_of, total_bytes
from remat_gen.picture.timeline_owners import residence_of
from remat_gen.solver.contest.subject import subject_of
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import Replay
from remat_gen.solver.law.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Curve:
    """Bytes over time: `nbytes[i]` from `times_us[i]` to `times_us[i + 1]`, one time more."""

    times_us: tuple[float, ...]
    nbytes: tuple[int, ...]

    @property
    def peak_bytes(self) -> int:
        """Return the highest bytes."""
        return max(self.nbytes, default=0)


@dataclass(frozen=True, slots=True)
class TimelineView:
    """A schedule's timeline. `bands` share `times_us` (one more than their bytes).

    `peak_label` names the operation that sets the peak and the user's line. `eager` is the replay
    with nothing run again; `measured` what `verify` saw, on the plan's time axis, of the step that
    is for no `rung`.
    """

    title: str
    times_us: tuple[float, ...]
    bands: tuple[Band, ...]
    backward_us: float
    budget_bytes: int
    peak_us: float
    peak_bytes: int
    peak_label: str
    eager: Curve
    measured: Curve | None = None
    rung: Rung | None = None


def timeline_view(
    graph: Graph,
    problem: Problem,
    schedule: Schedule,
    budget_bytes: int,
    *,
    title: str,
    root: str = "forward",
    measured: Curve | None = None,
    rung: Rung | None = None,
) -> TimelineView:
    """Return what is to be seen of a schedule; `root` names what no submodule made."""
    residence = residence_of(problem, schedule)
    bands = bands_of(graph, residence, root)
    totals = total_bytes(bands)
    at = max(range(len(totals)), key=totals.__getitem__)
    run = residence.runs[at]
    return TimelineView(
        title=title,
        times_us=(*(r.begin_us for r in residence.runs), residence.time_us),
        bands=bands,
        backward_us=residence.backward_us,
        budget_bytes=budget_bytes,
        peak_us=(run.begin_us + run.end_us) / 2,
        peak_bytes=totals[at],
        peak_label=_place(graph, run.operation),
        eager=curve_of(problem, subject_of(problem).eager()),
        measured=measured,
        rung=rung,
    )


def _place(graph: Graph, p: int) -> str:
    operation = graph.operations[p]
    source = operation.source
    return f"{operation.name}, {source.file}:{source.line}" if source.file else operation.name


def curve_of(problem: Problem, replayed: Replay) -> Curve:
    """Return a replay's bytes over time."""
    times = [0.0]
    for moment in replayed.timeline:
        times.append(times[-1] + problem.operations[moment.operation].time_us)
    return Curve(tuple(times), tuple(moment.nbytes for moment in replayed.timeline))


def thinned(times: Sequence[float], totals: Sequence[int], most: int = 1500) -> list[int]:
    """Return the indices that a picture needs: of each of `most` slices of time the highest.

    All of them where there are no more than that; the first is always among them.
    """
    if len(totals) <= most:
        return list(range(len(totals)))
    length = times[-1] or 1.0
    best: dict[int, int] = {}
    for i, nbytes in enumerate(totals):
        slice_of = min(int(times[i] / length * most), most - 1)
        if slice_of not in best or nbytes > totals[best[slice_of]]:
            best[slice_of] = i
    return sorted({0, *best.values()})


def peak_text(view: TimelineView) -> str:
    """Return the peak in words: how much, and where."""
    return f"{size(view.peak_bytes)} at {view.peak_label}"
