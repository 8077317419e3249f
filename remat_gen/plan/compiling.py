"""From a schedule to one with compiled parts: functions are measured, the quicker schedule is kept.

What functions cost is what an existing plan says, what is measured here, or what a target's rates
say. Two searches compete: one with the times that operations take one by one, and one with those
that they add to the reader that they fuse into. The replay of both with their parts decides. In the
quicker one operations that fuse are then moved together, which is kept if it gains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from remat_gen.capture.profile.targets import find_target
from remat_gen.compile.fused_costs import measure, modelled_parts
from remat_gen.compile.fusible import fusible_in
from remat_gen.compile.part_text import PartText
from remat_gen.ir.costs import Costs, PartCost
from remat_gen.ir.graph import Graph
from remat_gen.plan.fusion import choose_parts
from remat_gen.plan.marginal import marginal_costs
from remat_gen.plan.planning import Planned, is_of_here
from remat_gen.problem.smaller_problems import elsewhere_of
from remat_gen.solver.compiled.gather import gathered
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import replay
from remat_gen.terminal.progress import Stages

if TYPE_CHECKING:
    from remat_gen.plan.measured_step import MeasuredStep


@dataclass(slots=True)
class FunctionCosts:
    """Tells what functions cost; none is measured twice."""

    measure: Callable[[Sequence[PartText]], Mapping[str, PartCost]]
    known: dict[str, PartCost] = field(default_factory=dict)

    def __call__(self, texts: Sequence[PartText]) -> Mapping[str, PartCost]:
        """Return the costs of functions, by hash."""
        unknown = [text for text in texts if text.sha256 not in self.known]
        if unknown:
            self.known.update(self.measure(unknown))
        return {text.sha256: self.known[text.sha256] for text in texts}


def _function_costs(measured: MeasuredStep, stages: Stages) -> FunctionCosts:
    """Return what tells the costs of functions on the device that is planned for."""
    request, traced, costs = measured.request, measured.traced, measured.costs
    if request.target:
        hardware = find_target(request.target)
        return FunctionCosts(lambda texts: modelled_parts(traced.graph, hardware, costs, texts))
    device, by_host = measured.loaded.device, costs.launch_bound

    def timed(texts: Sequence[PartText]) -> Mapping[str, PartCost]:
        with stages("compile") as step:
            return measure(traced.graph, device, traced.examples, texts, step, by_host=by_host)

    old = None if request.reprofile else measured.old
    if old and old.compiled and is_of_here(old, device):  # whose compiler it is
        return FunctionCosts(timed, dict(old.compiled.costs))
    return FunctionCosts(timed)


def plan_compiled(
    measured: MeasuredStep, stages: Stages, plan: Callable[[Costs], Planned]
) -> Planned:
    """Plan with the times of operations one by one, and fused; compile, and keep the quicker."""
    graph, costs, functions = (
        measured.traced.graph,
        measured.costs,
        _function_costs(measured, stages),
    )
    compiler = _Compiler(graph, functions, tuple(e.problem for e in elsewhere_of(graph, costs)))
    apart = compiler.with_parts(plan(costs))
    marginal = marginal_costs(graph, costs, functions)
    searched = plan(marginal)
    own = replace(
        searched.solution,
        replay=replay(apart.problem, searched.schedule),
        eager=apart.solution.eager,
    )
    searched_us = searched.solution.replay.time_us
    fused = compiler.with_parts(replace(searched, pinned=apart.pinned, solution=own))
    best, best_us = min(
        (fused, searched_us),
        (apart, apart.solution.replay.time_us),
        key=lambda found: found[0].replay.time_us,
    )
    best = min(best, compiler.gathered(best), key=lambda planned: planned.replay.time_us)
    assert best.fusion is not None
    known = dict(sorted(functions.known.items()))
    compiled = replace(best.fusion.compiled, costs=known, searched_us=round(best_us, 3))
    return replace(best, fusion=replace(best.fusion, compiled=compiled))


@dataclass(frozen=True, slots=True)
class _Compiler:
    """Compiles schedules of a graph; they fit the budget in the problems `elsewhere`, too."""

    graph: Graph
    functions: FunctionCosts
    elsewhere: tuple[Problem, ...]

    def with_parts(self, planned: Planned) -> Planned:
        """Return the plan with the parts that are worth it."""
        problems = (planned.problem, *self.elsewhere)
        budget_bytes, schedule = planned.budget_bytes, planned.schedule
        fusion = choose_parts(self.graph, problems, schedule, budget_bytes, self.functions)
        return replace(planned, fusion=fusion)

    def gathered(self, planned: Planned) -> Planned:
        """Return the plan with operations that fuse moved together."""
        fusible = fusible_in(self.graph)
        schedule = gathered(planned.problem, planned.schedule, fusible, planned.budget_bytes)
        peaks = (replay(problem, schedule).peak_bytes for problem in self.elsewhere)
        if any(peak > planned.budget_bytes for peak in peaks):
            return planned
        figures, without = (
            replay(planned.problem, schedule, keep_gradients=keep) for keep in (False, True)
        )
        solution = replace(planned.solution, schedule=schedule, replay=figures)
        return self.with_parts(replace(planned, solution=solution, without_grads=without))
