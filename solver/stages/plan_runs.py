"""From a plan of the stage program to runs, and where those exceed the budget."""

from __future__ import annotations

from dataclasses import dataclass, field

from remat_gen.solver.blocks.judged_runs import Judged
from remat_gen.solver.stages.first_run_order import FirstRuns
from remat_gen.solver.stages.stage_program import StagePlan
from remat_gen.solver.states.bit_graph import BitGraph
from remat_gen.solver.states.bit_sets import members


@dataclass(slots=True)
class _Expansion:
    """Runs so far, and `there`: the values that the plan has at this moment."""

    graph: BitGraph
    runs: list[int] = field(default_factory=list)
    ran: int = 0
    there: int = 0

    def run(self, p: int) -> None:
        """Run an operation, and before it what it reads and is not there."""
        for v in members(self.graph.reads[p] & ~self.there):
            self.make(v)
        self.runs.append(p)
        self.ran |= 1 << p
        self.there |= self.graph.makes[p]

    def make(self, v: int) -> None:
        """Make a value that is not there."""
        if not self.there >> v & 1 and (p := self.graph.producer[v]) >= 0:
            self.run(p)


def expand(graph: BitGraph, order: FirstRuns, plan: StagePlan) -> list[int]:
    """Return a plan's runs: first runs by rank, re-runs as late as possible."""
    expansion = _Expansion(graph)
    for i, planned in enumerate(plan.runs):
        expansion.there = plan.kept[i]
        last = plan.stages[i] if i < len(plan.stages) else -1
        for p in sorted(members(planned), key=lambda p: order.rank[p]):
            if p != last and not expansion.ran >> p & 1:
                expansion.run(p)
        if last >= 0:
            for v in members(plan.kept[i + 1] & ~graph.makes[last]):
                expansion.make(v)
            expansion.run(last)
    return expansion.runs


def sequence_of(order: FirstRuns, plan: StagePlan) -> list[int]:
    """Return all operations in the order in which a plan runs them first."""
    sequence: list[int] = []
    seen = 0
    for i, planned in enumerate(plan.runs):
        last = plan.stages[i] if i < len(plan.stages) else -1
        new = sorted(members(planned & ~seen), key=lambda p: (p == last, order.rank[p]))
        sequence += new
        seen |= planned
    return sequence


@dataclass(frozen=True, slots=True)
class RunExcess:
    """A run over the budget: the operation, by how much, and the last stage that ran first."""

    nbytes: int
    operation: int
    first: bool
    stage: int


def excesses(judged: Judged, budget_bytes: int, stages: tuple[int, ...]) -> list[RunExcess]:
    """Return the runs over the budget, in order."""
    found, ran, stage = [], 0, -1
    for moment in judged.replay.timeline:
        p = moment.operation
        first = not ran >> p & 1
        if moment.nbytes > budget_bytes:
            found.append(RunExcess(moment.nbytes - budget_bytes, p, first, stage))
        if first and p in stages:
            stage = p
        ran |= 1 << p
    return found


def tight_turns(judged: Judged, budget_bytes: int) -> list[int]:
    """Return first runs at which memory is over the budget, or was since the one before.

    Those over by the most come first. What re-runs are for is there until the first run that they
    precede: a stage there bounds them, too.
    """
    over: dict[int, int] = {}
    ran, most = 0, 0
    for moment in judged.replay.timeline:
        p = moment.operation
        most = max(most, moment.nbytes - budget_bytes)
        if not ran >> p & 1:
            if most > 0:
                over[p] = most
            most = 0
        ran |= 1 << p
    return sorted(over, key=lambda p: (-over[p], p))
