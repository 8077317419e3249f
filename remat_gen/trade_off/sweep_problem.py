"""A model file to its scheduling problem: traced once, measured once, or its plan's costs again."""

from __future__ import annotations

from dataclasses import dataclass

from remat_gen.ask.request import Request, default_output
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.ir.graph import Graph
from remat_gen.plan.costing import costs_of, load_for
from remat_gen.plan.output import plan_beside
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.law.problem import Problem
from remat_gen.terminal.progress import Progress


@dataclass(frozen=True, slots=True)
class Measured:
    """A traced step with its costs; `reused` where they are those of an existing plan."""

    graph: Graph
    problem: Problem
    device: str
    reused: bool


def measured(request: Request, live: Loaded | None, progress: Progress) -> Measured:
    """Load, trace and profile a model, or a `live` one that was built already."""
    progress.stage("load")
    loaded = load_for(request, live)
    # what varies is as in the plan, and what is fixed, for its costs
    plan = plan_beside(default_output(request.model_file))
    progress.stage("trace")
    traced = trace_loaded(loaded, *((plan.dynamic, plan.fixed) if plan else (None,)))
    step = progress.stage("profile")
    old = None if request.reprofile else plan
    costs, reused = costs_of(traced, loaded, request.target, old, step)
    return Measured(traced.graph, problem_of(traced.graph, costs), costs.device, reused)
