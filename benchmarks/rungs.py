"""What schedules for shorter steps gain: one, two and three plans in a file, over many lengths.

    python benchmarks/rungs.py > benchmarks/results/rungs.md

The GPT of `benchmarks/offload.py` (width 1024, batch 8 × 1024 tokens, 4 layers, 16 heads, a
vocabulary of 32,000), costs modelled from an H200's published rates, nothing is run. The budget is
a share of eager's peak at 1024. Some lengths are equally often; a step takes the predicted time of
the schedule that it would run, replayed at its own length. Lost is what all steps together take
beyond the best: a plan for each length alone, which is known with hindsight. That is what a choice
that learns from what it meets could still gain.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Sequence

from offload import BOTH, source
from planned import print_table, scratch

from remat_gen.capture.load.load import load_fake
from remat_gen.capture.profile.modelled import modelled_costs
from remat_gen.capture.profile.targets import find_target
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.ir.costs import Costs
from remat_gen.ir.graph import Graph
from remat_gen.ir.rung import Rung
from remat_gen.problem.rung_limits import RungLimits
from remat_gen.problem.rung_problems import rung_graph, rung_problem
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.solve import Solver

TARGET = "h200"
LONGEST = 1024
MANY = tuple(range(256, LONGEST + 1, 64))
FEW = (256, 512, 768, LONGEST)
SHARES = (80, 60, 50, 40)
HEAD = (
    "budget",
    "one plan, over eager at 1024 / 768 / 512 / 256",
    "a plan each",
    "one plan loses",
    "best two",
    "best three",
    "best five",
    "--rungs auto",
)


class Step:
    """A step of any length, its costs modelled there, within one budget."""

    def __init__(self, graph: Graph, whole: Problem, budget: int, lengths: tuple[int, ...]) -> None:
        self.graph, self.whole, self.budget, self.lengths = graph, whole, budget, lengths
        self.problem = functools.cache(self._problem)
        self.schedule = functools.cache(self._schedule)
        self.time_us = functools.cache(self._time_us)

    def eager_us(self, length: int) -> float:
        """Return eager's time."""
        return Solver(self.problem(length), "none").plain.time_us

    def _problem(self, length: int) -> Problem:
        there = rung_graph(self.graph, Rung({"length": length}))
        return rung_problem(there, _costs(there), self.whole)

    def _schedule(self, limit: int) -> Schedule:
        """Return the schedule that is planned for steps up to a limit."""
        return Solver(self.problem(limit), "auto").solve(self.budget).schedule

    def _time_us(self, limit: int, length: int) -> float:
        """Return how long a step takes by the schedule for a limit."""
        found = replay(self.problem(length), self.schedule(limit))
        assert found.peak_bytes <= self.budget
        return found.time_us

    def total_us(self, limits: Sequence[int]) -> float:
        """Return how long one step of each length takes, each by the first that admits it."""
        taken = (next(limit for limit in limits if n <= limit) for n in self.lengths)
        return sum(self.time_us(limit, n) for limit, n in zip(taken, self.lengths, strict=True))

    def best(self, plans: int) -> tuple[int, ...]:
        """Return the limits that lose least, the longest among them."""
        chosen = itertools.combinations(self.lengths[:-1], min(plans, len(self.lengths)) - 1)
        return min(((*limits, LONGEST) for limits in chosen), key=self.total_us)


def _costs(graph: Graph) -> Costs:
    return modelled_costs(graph, find_target(TARGET))


def main() -> None:
    graph = _graph()
    whole = problem_of(graph, _costs(graph))
    eager = Solver(whole, "none").plain.peak_bytes
    print("# Schedules for shorter steps\n")
    print(__doc__.split("\n\n")[2].strip().replace("\n", " "), "\n")
    for name, lengths in (("every 64th from 256 to 1024", MANY), ("256, 512, 768, 1024", FEW)):
        steps = (Step(graph, whole, eager * share // 100, lengths) for share in SHARES)
        print(f"## Lengths: {name}\n")
        print_table(HEAD, [_row(*row) for row in zip(steps, SHARES, strict=True)])
        print()


def _graph() -> Graph:
    with scratch("rungs") as folder:
        file = folder / "gpt.py"
        file.write_text(source(BOTH), encoding="utf-8")
        loaded = load_fake(file, None, None, find_target(TARGET).absent)
        return trace_loaded(loaded, ("ids:1", "targets:1")).graph


def _row(step: Step, share: int) -> list[str]:
    plan = step.schedule(LONGEST)
    auto = RungLimits(step.graph, _costs(step.graph), step.whole, plan, step.budget).rungs()
    limits = (*(rung.limits["length"] for rung in auto), LONGEST)
    best = sum(step.time_us(n, n) for n in step.lengths)
    shown = tuple(reversed(FEW))
    row = [
        f"{share} %",
        _overheads(step, [(LONGEST, n) for n in shown]),
        _overheads(step, [(n, n) for n in shown]),
        _lost(step, (LONGEST,), best),
        *(_lost(step, step.best(plans), best) for plans in (2, 3, 5)),
        _lost(step, limits, best),
    ]
    print(*row, sep=" | ", file=sys.stderr, flush=True)
    return row


def _overheads(step: Step, pairs: Sequence[tuple[int, int]]) -> str:
    ratios = (step.time_us(limit, n) / step.eager_us(n) for limit, n in pairs)
    return " / ".join(f"{100 * (ratio - 1):.1f}" for ratio in ratios) + " %"


def _lost(step: Step, limits: Sequence[int], best: float) -> str:
    lost = 100 * (step.total_us(limits) / best - 1)
    named = f" ({', '.join(map(str, limits[:-1]))})" if len(limits) > 1 else ""
    return f"{lost:.2f} %{named}"


if __name__ == "__main__":
    main()
