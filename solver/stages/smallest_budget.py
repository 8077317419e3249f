"""The smallest budget within which a problem has any schedule."""

from __future__ import annotations

from dataclasses import dataclass

from remat_gen.solver.blocks.judged_runs import IncumbentSchedule, Judged, judge
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.stages.exact_search import AHEAD, LIMITS
from remat_gen.solver.stages.first_run_order import first_runs
from remat_gen.solver.stages.stage_refinement import StageRefinement
from remat_gen.solver.states.bit_graph import NEVER, BitGraph
from remat_gen.solver.states.state_search import Expander, StateSearch


def smallest(problem: Problem, effort: Effort = Effort.NORMAL) -> tuple[int, bool]:
    """Return the least peak found, in bytes, and whether no schedule has a smaller one.

    A training problem's schedules are those whose backward operations run block by block.
    """
    judged, proved = least(problem, effort)
    return (0 if judged is None else judged.replay.peak_bytes), proved


def least(problem: Problem, effort: Effort = Effort.NORMAL) -> tuple[Judged | None, bool]:
    """Return the schedule of `smallest`, None where there is nothing to run."""
    if not problem.operations:
        return None, True
    graph = BitGraph(problem)
    plain = judge(problem, graph.chain, range(graph.count))
    assert plain is not None, "the given order is not topological"
    return _Bisection(graph, plain, effort, problem.floor_bytes(), plain).run()


@dataclass(slots=True)
class _Bisection:
    """Below `low` nothing is found (`proved`: there is nothing); `best` has the least peak."""

    graph: BitGraph
    plain: Judged
    effort: Effort
    low: int
    best: Judged
    proved: bool = True

    def run(self) -> tuple[Judged, bool]:
        """Try the least that one operation needs, which is often the answer; then halve."""
        middle, work = self.low, LIMITS[self.effort].programs // 2
        while self.low < self.high:
            judged, certain = self._least_at(middle, work)
            if judged is not None:
                self.best = judged
            else:
                self.low = middle + 1
                self.proved = self.proved and certain
            middle, work = (self.low + self.high) // 2, LIMITS[self.effort].programs // 20
        return self.best, self.proved

    @property
    def high(self) -> int:
        """Return the least peak found."""
        return self.best.replay.peak_bytes

    def _least_at(self, budget_bytes: int, work: int) -> tuple[Judged | None, bool]:
        """Return some schedule within a budget; without one, whether there is none."""
        limits = LIMITS[self.effort]
        expander = Expander(self.graph, budget_bytes, limits.first_states)
        found = StateSearch(expander, NEVER, self.graph.total_us * AHEAD, deep=True).search()
        if found.runs is not None:
            judged = judge(self.graph.problem, self.graph.chain, found.runs)
            assert judged is not None, "a searched schedule cannot run"
            return judged, True
        if found.complete:
            return None, True
        incumbent = IncumbentSchedule(self.graph.problem, self.graph.chain, budget_bytes)
        order = first_runs(self.graph, in_blocks=self.graph.chain is not None)
        staged = StageRefinement(self.graph, order, incumbent, work, limits.order)
        staged.search(self.plain)
        if incumbent.best is not None:
            return incumbent.best, True
        return None, staged.infeasible
