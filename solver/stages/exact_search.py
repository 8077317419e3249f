"""Search a whole graph for the quickest schedule within a budget, with a proof or a bound.

Best-first search over states ends on graphs of up to some thirty operations; the stage program
bounds all schedules, and its plans, put in order, are schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from remat_gen.solver.blocks.judged_runs import IncumbentSchedule, Judged
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort, Found, Incumbent
from remat_gen.solver.stages.first_run_order import FirstRuns, first_runs
from remat_gen.solver.stages.plan_runs import (
    StageChoice,
    Within,
    expand,
    sequence_of,
    tight_turns,
    tight_within,
)
from remat_gen.solver.stages.stage_program import StagePlan, solve_stages
from remat_gen.solver.states.bit_graph import NEVER, BitGraph
from remat_gen.solver.states.state_search import StateSearch

ALL = "all schedules"
TOLERANCE = 1e-6  # of the time of all operations: what HiGHS answers for
STAGES_A_ROUND = 3
WITHIN_A_ROUND = 5
APART = 3  # operations between two stages added at once: neighbours are tight together
FEW = 24  # operations: a search over states mostly ends
SMALL = 32  # operations: more work on states still may
MIDDLING = 64  # operations beyond which it hardly ever does
SMALL_SHARE = 5  # times as much of it
AGAIN = 5  # what part of the work on programs goes to all schedules after those block by block
IN_ORDER = 8  # what part of it goes to a plan's own order: that finds something soon, or not at all
PROGRAMS = 500  # work on programs per operation, at least: some hundred nodes of one stage
IN_BLOCKS = "schedules whose backward operations run block by block"


@dataclass(frozen=True, slots=True)
class Limits:
    """Work on states before the programs, on these, and on states after them."""

    first_states: int
    programs: int
    last_states: int


LIMITS = {
    Effort.QUICK: Limits(5_000, 700_000, 12_500),
    Effort.NORMAL: Limits(12_500, 2_500_000, 250_000),
    Effort.THOROUGH: Limits(50_000, 30_000_000, 5_000_000),
}
GLANCE = Limits(2_500, 100_000, 2_500)


def search(
    problem: Problem,
    budget_bytes: int,
    effort: Effort = Effort.NORMAL,
    incumbent: tuple[int, ...] | None = None,
    on_better: Incumbent | None = None,
    on_bound: Callable[[float], None] | None = None,
    *,
    limits: Limits | None = None,
    in_blocks: bool = True,
) -> Found:
    """Return the quickest runs within a budget, proved or with a bound; `incumbent` is a start.

    `on_better` hears of each better schedule, `on_bound` of each better bound for all schedules.
    `limits` take the place of the effort's. Without `in_blocks` programs of schedules whose
    backward runs block by block are left out.
    """
    if not problem.operations:
        return Found((), complete=True)
    graph = BitGraph(problem)
    best = IncumbentSchedule(problem, graph.chain, budget_bytes, on_better)
    return _Search(graph, best, on_bound).run(
        incumbent, limits or LIMITS[effort], in_blocks=in_blocks
    )


@dataclass(slots=True)
class _Search:
    """`bounds` hold for all schedules (False), and for those block by block (True)."""

    graph: BitGraph
    incumbent: IncumbentSchedule
    on_bound: Callable[[float], None] | None
    bounds: dict[bool, float] = field(default_factory=lambda: {False: 0.0, True: 0.0})

    def run(self, start: Sequence[int] | None, limits: Limits, *, in_blocks: bool) -> Found:
        graph = self.graph
        plain = self.incumbent.offer(range(graph.count))
        assert plain is not None, "the given order is not topological"
        if start is not None:
            self.incumbent.offer(start)
        too_low = self.incumbent.budget_bytes < graph.problem.floor_bytes()
        self.bounds = dict.fromkeys((False, True), NEVER if too_low else graph.total_us)
        programs = max(limits.programs, PROGRAMS * graph.count)
        if not self._closed() and graph.count <= FEW:
            self._states(limits.first_states)
        if not self._closed() and graph.chain is not None and in_blocks:
            self._stages(plain, programs, in_blocks=True, in_order=True)
        if self.bounds[False] < self.incumbent.time_us:
            share = 1 if graph.chain is None else AGAIN
            self._stages(plain, programs // share, in_blocks=False, in_order=in_blocks)
        if not self._closed() and graph.count <= MIDDLING:
            self._states(limits.last_states * (SMALL_SHARE if graph.count <= SMALL else 1))
        return self._found()

    def _states(self, limit: int) -> None:
        budget_bytes, upper_us = self.incumbent.budget_bytes, self.incumbent.time_us
        found = StateSearch(self.graph, budget_bytes, limit, upper_us).search()
        if found.runs is not None:
            self.incumbent.offer(found.runs)
        bound_us = min(found.bound_us, self.incumbent.time_us)
        self._bound(bound_us, in_blocks=not self.graph.every_order)

    def _stages(self, plain: Judged, work: int, *, in_blocks: bool, in_order: bool) -> None:
        """Solve by stages; if that ends open, `in_order` of the last plan, which bounds none.

        That finds schedules where the order that all have in common says too little.
        """
        order = first_runs(self.graph, in_blocks=in_blocks)
        bound_us, plan = refined(self.graph, order, self.incumbent, plain, work)
        self._bound(bound_us, in_blocks=in_blocks)
        if in_order and plan is not None and not self._closed():
            order = order.in_order(sequence_of(order, plan))
            refined(self.graph, order, self.incumbent, plain, work // IN_ORDER, easy=True)

    def _bound(self, bound_us: float, *, in_blocks: bool) -> None:
        for smaller in {in_blocks, True}:  # what holds for all holds block by block
            self.bounds[smaller] = max(self.bounds[smaller], bound_us)
        if not in_blocks and self.on_bound is not None:
            self.on_bound(self.bounds[False])

    def _closed(self, *, in_blocks: bool = True) -> bool:
        """Tell whether a bound is the best time, to what HiGHS answers for, or rules out any."""
        tolerance = self.graph.total_us * TOLERANCE
        return self.incumbent.time_us <= self.bounds[in_blocks] + tolerance

    def _found(self) -> Found:
        runs, time_us = self.incumbent.found().runs, self.incumbent.time_us
        if self._closed(in_blocks=False):
            return Found(runs, time_us, ALL, True)
        if self._closed():
            return Found(runs, time_us, IN_BLOCKS, True)
        return Found(runs, min(self.bounds[False], time_us), ALL, False)


def refined(
    graph: BitGraph,
    order: FirstRuns,
    incumbent: IncumbentSchedule,
    plain: Judged,
    work: int,
    *,
    easy: bool = False,
) -> tuple[float, StagePlan | None]:
    """Offer what plans are as schedules; return a bound (us) of all in the order, the last plan.

    The first stage is where the plain schedule is tightest. A plan is put in order and replayed:
    where it exceeds the budget, the tight operations become stages, or, where none is left to add,
    rows within an interval. The bound is infinite where there is no schedule. `work` limits
    HiGHS's on all programs, as `StageSolution` counts it. With `easy` only the first program of
    several stages is begun where a hard one would take more work than is left.
    """
    budget_bytes, tolerance = incumbent.budget_bytes, graph.total_us * TOLERANCE
    choice = StageChoice.of(order, tight_turns(plain, budget_bytes))
    within: frozenset[Within] = frozenset()
    bound_us, hard, last = 0.0, False, None
    while work > 0 and incumbent.time_us > bound_us + tolerance:
        stages = choice.stages
        outcome = solve_stages(graph, order, budget_bytes, stages, work, within=within, hard=hard)
        if outcome.infeasible:
            return incumbent.time_us, None
        work -= outcome.work
        # one that does not end at its root: nor will those with more stages
        hard = outcome.branched or (easy and len(stages) > 1)
        bound_us = max(bound_us, min(outcome.bound_us, incumbent.time_us))
        if outcome.plan is None:
            break
        last = outcome.plan
        judged = incumbent.offer(expand(graph, order, last))
        if judged is None:
            break
        if not choice.add(tight_turns(judged, budget_bytes), STAGES_A_ROUND, APART):
            tight = tight_within(judged, budget_bytes, stages)
            new = [run for run in tight if run not in within][:WITHIN_A_ROUND]
            if not new:
                break
            within |= frozenset(new)
    return bound_us, last
