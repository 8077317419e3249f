"""Trace a generated module's original again and put its plan's schedule on the graph.

Tensors without values are traced where the builder allows it, so that a model of any size can be
looked at on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from remat_gen.capture.load.load import Loaded
from remat_gen.capture.load.without_values import has_constants
from remat_gen.capture.trace.trace import Traced, trace_loaded
from remat_gen.ir.errors import GraphError, RematError, StalePlanError, UsageError
from remat_gen.ir.fingerprint import graph_sha256
from remat_gen.ir.plan import Plan, PlannedRung
from remat_gen.ir.rung import Rung
from remat_gen.picture.timeline_measured import recall
from remat_gen.picture.timeline_owners import residence_of
from remat_gen.picture.timeline_view import TimelineView, timeline_view
from remat_gen.plan.plan_names import program_of_rung, schedule_of
from remat_gen.problem.host_copies_planned import planned_problem
from remat_gen.problem.rung_problems import rung_graph
from remat_gen.review.generated_module import Existing
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import IllegalScheduleError, Replay, replay
from remat_gen.solver.law.schedule import Schedule
from remat_gen.units.tracing_units import retrace_units


@dataclass(frozen=True, slots=True)
class Retraced:
    """A generated module's plan on the graph that it was made for; `replay` has its figures.

    With a `rung` all of it is what is planned for that rung, at the longest step that it admits.
    """

    existing: Existing
    loaded: Loaded
    traced: Traced
    problem: Problem
    schedule: Schedule
    replay: Replay
    rung: Rung | None = None

    def at_rung(self, planned: PlannedRung) -> Retraced:
        """Return what is planned for one of the rungs."""
        plan, graph = self.existing.plan, rung_graph(self.traced.graph, planned.rung)
        program = program_of_rung(graph, plan, self.problem, planned)
        return replace(
            self,
            existing=replace(self.existing, plan=plan.of_rung(planned)),
            traced=replace(self.traced, graph=graph, examples={}),
            problem=program.problem,
            schedule=program.schedule,
            replay=replay(program.problem, program.schedule),
            rung=planned.rung,
        )


def retrace_file(path: Path, rung: str | None = None) -> Retraced:
    """Read a generated module and its plan, and trace its original again.

    Raises:
        UsageError: the file is not ours, has no plan or no such `rung`, or is of another torch.
        StalePlanError: the original is traced to another graph than the plan's.
        RematError: the original cannot be loaded or traced any more.
    """
    existing = Existing.find(path)
    existing.refuse_other_torch()
    planned = None if rung is None else _rung_called(existing.plan, rung, path)
    loaded, traced = retrace(existing)
    stale = f"{path}: stale: {{}}; run: {existing.plan.asked.command}"
    if graph_sha256(traced.graph) != existing.plan.graph_sha256:
        raise StalePlanError(
            stale.format("the model is traced to other operations than the plan's")
        )
    try:
        problem = planned_problem(traced.graph, existing.plan)
        schedule = schedule_of(problem, existing.plan.schedule)
        whole = Retraced(existing, loaded, traced, problem, schedule, replay(problem, schedule))
        return whole if planned is None else whole.at_rung(planned)
    except (GraphError, IllegalScheduleError) as error:
        raise StalePlanError(stale.format(f"the plan cannot be carried out: {error}")) from error


def _rung_called(plan: Plan, text: str, path: Path) -> PlannedRung:
    """Return the rung that is written so, with spaces or without."""
    found = {str(planned.rung): planned for planned in plan.rungs}
    for name, planned in found.items():
        if name.replace(" ", "") == text.replace(" ", ""):
            return planned
    has = ", ".join(found) if found else "none"
    raise UsageError(f"--rung {text}: the rungs of {path} are: {has}")


def retrace(existing: Existing) -> tuple[Loaded, Traced]:
    """Trace the original without values; with them where what is built or read needs them.

    A plan for a device that is not here is of a trace without values.
    """
    if existing.plan.units is not None:
        loaded = existing.load()
        return loaded, retrace_units(loaded, existing.plan.units)
    if existing.plan.modelled is not None:
        loaded = existing.load(fake=True)
        return loaded, trace_loaded(loaded, existing.plan.dynamic)
    try:
        loaded = existing.load(fake=True)
        if not (has_constants(loaded.model) or existing.plan.fixed):
            return loaded, trace_loaded(loaded, existing.plan.dynamic)
    except RematError:  # the real one says what is wrong, if anything is
        pass
    loaded = existing.load()
    return loaded, trace_loaded(loaded, existing.plan.dynamic, existing.plan.fixed)


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
