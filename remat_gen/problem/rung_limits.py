"""Choose the rungs of `--rungs auto`: the two limits with which steps of all lengths lose least.

At a few lengths, from the longest that fits as it is to the example's, the overhead of a plan is
looked for with little work and scaled costs; between them it is on straight lines. A schedule adds
about the same share to shorter steps than it was planned for, and a step takes about as long as it
is long. All lengths are taken to be equally often.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from remat_gen.capture.profile.roofline import NOMINAL_CPU, roofline_us
from remat_gen.ir.costs import Costs
from remat_gen.ir.graph import Graph
from remat_gen.ir.rung import Rung
from remat_gen.ir.size import Length
from remat_gen.problem.rung_problems import rung_graph, rung_problem
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.law.search_types import Effort, Progress, silent
from remat_gen.solver.solve import InfeasibleError, Solver

_SAMPLES = 4  # of the overhead, the longest step's besides
_GRID = 32  # how many limits there are to choose from

Curve: TypeAlias = Sequence[tuple[int, float]]  # overhead by length, in order


@dataclass(frozen=True, slots=True)
class RungLimits:
    """A step whose lengths vary, its costs, its problem and its plan at the longest."""

    graph: Graph
    costs: Costs
    here: Problem
    plan: Schedule
    budget_bytes: int
    progress: Progress = silent

    def rungs(self) -> tuple[Rung, ...]:
        """Return at most two rungs of the length that most of the memory depends on.

        None where nothing varies, or the longest step has nothing run again.
        """
        whole = _overhead(self.here, self.plan)
        halves = [
            (self._eager(n, max(n.minimum, n.maximum // 2)).plain.peak_bytes, n)
            for n in self.graph.lengths
        ]
        if not halves or whole <= 0:
            return ()
        _, length = min(halves, key=lambda half: half[0])
        low, high = self._longest_fitting(length), length.maximum
        samples = sorted({low + (high - low) * i // _SAMPLES for i in range(_SAMPLES)} - {high})
        curve = [(n, self._searched(length, n)) for n in samples]
        limits = limits_of([*curve, (high, whole)], length.minimum)
        return tuple(Rung({length.name: n}) for n in limits)

    def _longest_fitting(self, length: Length) -> int:
        """Return the largest number at which eager's step fits, the smallest one if none does."""
        low, high = length.minimum, length.maximum
        while high - low > 1:
            middle = (low + high) // 2
            if self._eager(length, middle).plain.peak_bytes <= self.budget_bytes:
                low = middle
            else:
                high = middle
        return low

    def _searched(self, length: Length, number: int) -> float:
        """Return the overhead of a plan for a number."""
        there = self._eager(length, number).problem
        try:
            solver = Solver(there, "auto", self.progress, Effort.QUICK)
            found = solver.solve(self.budget_bytes)
        except InfeasibleError:  # the workspace is the longest step's, which is more
            return _overhead(there, self.plan)
        return _overhead(there, found.schedule)

    def _eager(self, length: Length, number: int) -> Solver:
        there = rung_graph(self.graph, Rung({length.name: number}))
        return Solver(rung_problem(there, self._scaled(there), self.here), "none")

    def _scaled(self, there: Graph) -> Costs:
        """Return costs at other lengths by the roofline's ratio."""
        pairs = zip(self.graph.operations, there.operations, strict=True)
        costs = {}
        for here, shorter in pairs:
            ratio = roofline_us(there, shorter, NOMINAL_CPU)
            ratio /= roofline_us(self.graph, here, NOMINAL_CPU)
            cost = self.costs.operations[here.name]
            times = cost.time_us * ratio, cost.host_us * ratio
            costs[here.name] = replace(cost, time_us=times[0], host_us=times[1])
        return replace(self.costs, operations=costs)


def limits_of(curve: Curve, shortest: int) -> tuple[int, ...]:
    """Return the two limits, in order, with which steps up to the curve's end lose least.

    One may be the same as another, or as the end: then there are fewer.
    """
    low, high = curve[0][0], curve[-1][0]
    grid = sorted({low + (high - low) * i // _GRID for i in range(_GRID + 1)})
    overhead = {n: _between(curve, n) for n in grid}

    def lost(limits: tuple[int, ...]) -> float:
        ranges = itertools.pairwise((shortest - 1, *limits, high))
        return sum((b * b - a * a) * overhead[b] for a, b in ranges)

    pairs = itertools.combinations_with_replacement(grid, 2)
    best = min(pairs, key=lambda pair: (lost(pair), len({*pair, high})))
    return tuple(n for n in dict.fromkeys(best) if n < high)


def _between(curve: Curve, number: int) -> float:
    for (a, below), (b, above) in itertools.pairwise(curve):
        if a <= number <= b:
            return below + (above - below) * (number - a) / (b - a)
    raise ValueError(f"the curve has no {number}")


def _overhead(problem: Problem, schedule: Schedule) -> float:
    return replay(problem, schedule).time_us / Solver(problem, "none").plain.time_us - 1
