"""From a plan of the stage program to runs, and where those exceed the budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from remat_gen.solver.blocks.judged_runs import Judged
from remat_gen.solver.stages.first_run_order import FirstRuns, heaviest_chain
from remat_gen.solver.stages.stage_program import StagePlan
from remat_gen.solver.states.bit_graph import BitGraph
from remat_gen.solver.states.bit_sets import members

Within: TypeAlias = tuple[int, int]
"""An operation, and the last stage that ran first before it."""


def expand(graph: BitGraph, order: FirstRuns, plan: StagePlan) -> list[int]:
    """Return a plan's runs: first runs by rank, re-runs as late as possible."""
    runs: list[int] = []
    ran = there = 0  # so far, and the values that the plan has at this moment

    def run(p: int) -> None:
        nonlocal ran, there
        for v in members(graph.reads[p] & ~there):
            make(v)
        runs.append(p)
        ran |= 1 << p
        there |= graph.makes[p]

    def make(v: int) -> None:
        if not there >> v & 1 and (p := graph.producer[v]) >= 0:
            run(p)

    for i, planned in enumerate(plan.runs):
        there = plan.kept[i]
        last = plan.stages[i] if i < len(plan.stages) else -1
        for p in sorted(members(planned), key=order.rank.__getitem__):
            if p != last and not ran >> p & 1:
                run(p)
        if last >= 0:
            for v in members(plan.kept[i + 1] & ~graph.makes[last]):
                make(v)
            run(last)
    return runs


def sequence_of(order: FirstRuns, plan: StagePlan) -> list[int]:
    """Return all operations in the order in which a plan runs them first."""
    sequence: list[int] = []
    seen = 0
    for planned, last in zip(plan.runs, (*plan.stages, -1), strict=True):
        sequence += sorted(members(planned & ~seen), key=lambda p: (p == last, order.rank[p]))
        seen |= planned
    return sequence


def tight_turns(judged: Judged, budget_bytes: int) -> dict[int, int]:
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
    return {p: over[p] for p in sorted(over, key=lambda p: (-over[p], p))}


def tight_within(judged: Judged, budget_bytes: int, stages: Sequence[int]) -> list[Within]:
    """Return the runs over the budget between two stages, those over by the most first."""
    found: list[tuple[int, Within]] = []
    ran, stage = 0, -1
    for moment in judged.replay.timeline:
        p = moment.operation
        if moment.nbytes > budget_bytes and stage not in (-1, stages[-1]):
            found.append((budget_bytes - moment.nbytes, (p, stage)))
        if p in stages and not ran >> p & 1:
            stage = p
        ran |= 1 << p
    return [run for _, run in sorted(found, key=lambda run: run[0])]


@dataclass(slots=True)
class StageChoice:
    """Stages, of the operations that are ordered and were tightest in the plain schedule."""

    order: FirstRuns
    allowed: int
    stages: tuple[int, ...] = ()

    @classmethod
    def of(cls, order: FirstRuns, tight: dict[int, int]) -> StageChoice:
        """Return the choice of the tightest; the first of `tight` weigh most."""
        weights = [1.0] * len(order.before)
        most = max(tight.values(), default=1)
        for p, nbytes in tight.items():
            weights[p] += len(weights) * (1 + nbytes / most)
        choice = cls(order, heaviest_chain(order, weights))
        choice.add(tight, 1, 0)
        return choice

    def add(self, tight: Iterable[int], most: int, apart: int, beside: Sequence[int] = ()) -> bool:
        """Make at most so many tight operations stages; tell whether any was.

        Those added have more than `apart` operations between them and those `beside`.
        """
        added: list[int] = []
        rank = self.order.rank
        for p in tight:
            free = self.allowed >> p & 1 and p not in self.stages and len(added) < most
            if free and all(abs(rank[p] - rank[q]) > apart for q in (*beside, *added)):
                added.append(p)
        self.stages = tuple(sorted((*self.stages, *added), key=rank.__getitem__))
        return bool(added)
