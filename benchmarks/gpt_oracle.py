"""Two and four GPT layers against CP-SAT: whole graph, each operation re-run at most once.

pip install ortools; python benchmarks/gpt_oracle.py [SECONDS] > benchmarks/results/gpt_oracle.md

The model is Moccasin's (Bartan et al., 2023): each value has a first life and, where its operation
runs again, a second one; a re-run stands before one backward operation. Orders are the traced
ones. CP-SAT starts from the schedule of `auto` as a hint, so that its best is no worse.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

import torch
from fake_step import fake_problem
from gpt2_model import Shape, step_of
from ortools.sat.python import cp_model
from planned import print_table

from remat_gen.capture.profile.roofline import Rates
from remat_gen.solver.blocks.block_chain import Chain
from remat_gen.solver.blocks.partition import partition
from remat_gen.solver.law.problem import Held, Problem, in_units
from remat_gen.solver.law.schedule import Run, Schedule
from remat_gen.solver.solve import InfeasibleError, Solution, Solver

RATES = Rates(flops_per_us=600e6, bytes_per_us=4e6, launch_us=3.0)
SHARES = {2: (90, 60, 50), 4: (90, 60, 50, 30)}
TICKS_PER_US = 100
HEAD = ("layers", "budget", "auto", "seconds", "CP-SAT", "its status", "its bound")


@dataclass(slots=True)
class Oracle:
    """CP-SAT's model of one problem, in units of bytes; `budget` in the same units."""

    problem: Problem
    chain: Chain
    budget: int
    model: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    again: dict[int, cp_model.IntVar] = field(default_factory=dict)
    stage: dict[int, cp_model.IntVar] = field(default_factory=dict)
    start: dict[int, cp_model.IntVar] = field(default_factory=dict)
    first_end: dict[int, cp_model.IntVar] = field(default_factory=dict)
    second_end: dict[int, cp_model.IntVar] = field(default_factory=dict)
    lives: list[cp_model.IntervalVar] = field(default_factory=list)
    demands: list[int] = field(default_factory=list)

    @property
    def forward(self) -> int:
        """Return the number of forward operations."""
        return self.problem.forward_count

    @property
    def end(self) -> int:
        """Return the last moment."""
        return self.moment(len(self.problem.operations) - 1)

    def moment(self, p: int) -> int:
        """Return when an operation runs first; between two backward ones every re-run has room."""
        past = p - self.forward
        return p if past < 0 else self.forward + past * (self.forward + 1) + self.forward

    def build(self) -> None:
        """Add everything."""
        readers: dict[int, list[int]] = {v: [] for v in range(len(self.problem.values))}
        for q, operation in enumerate(self.problem.operations):
            for v in operation.inputs:
                readers[v].append(q)
        self._add_reruns(readers)
        for v in readers:
            self._add_lives(v, readers[v])
        for v in self.first_end:
            for q in readers[v]:
                self._add_read(v, q)
        self.model.add_cumulative(self.lives, self.demands, self.budget)
        ticks = {p: round(self.problem.operations[p].time_us * TICKS_PER_US) for p in self.again}
        self.model.minimize(sum(ticks[p] * x for p, x in self.again.items()))

    def hint(self, schedule: Schedule) -> None:
        """Start from a schedule."""
        steps = [s for segment in schedule.segments for s in segment.steps]
        stage, stages, seen = 0, dict[int, int](), set[int]()
        for p in (s.operation for s in steps if isinstance(s, Run)):
            if p >= self.forward:
                stage = p - self.forward + 1
            elif p in seen:
                stages[p] = stage
            seen.add(p)
        for p, x in self.again.items():
            self.model.add_hint(x, p in stages)
            self.model.add_hint(self.stage[p], min(stages.get(p, 0), self._last_stage[p]))

    _last_stage: dict[int, int] = field(default_factory=dict)

    def _add_reruns(self, readers: dict[int, list[int]]) -> None:
        last = [-1] * self.forward
        for p in range(self.forward - 1, -1, -1):
            operation = self.problem.operations[p]
            for q in (q for v in operation.outputs for q in readers[v]):
                last[p] = max(last[p], q - self.forward if q >= self.forward else last[q])
            if not operation.rerunnable or last[p] < 0:
                continue
            self._last_stage[p] = last[p]
            self.again[p] = self.model.new_bool_var("")
            self.stage[p] = self.model.new_int_var(0, last[p], "")
            width = self.forward + 1
            self.start[p] = self.model.new_int_var(0, self.end, "")
            self.model.add(self.start[p] == self.forward + p + width * self.stage[p])

    def _add_lives(self, v: int, readers: list[int]) -> None:
        value, producer = self.problem.values[v], self.problem.producers().get(v)
        made = self.forward if producer is None else self.moment(producer)
        reads = [self.moment(q) for q in readers]
        if value.held is not Held.FREE or producer is None or producer >= self.forward:
            last = max([made, *reads])
            if value.held is Held.STEP:
                last = self.end
            elif value.held is Held.SEGMENT:
                last = self._segment_end(max([last, self.forward]))
            self._live(self.model.new_fixed_size_interval_var(made, last + 1 - made, ""), v)
            return
        least = max([made, *(r for r in reads if r < self.forward)])
        self.first_end[v] = self.model.new_int_var(least, self.end, "")
        size = self.model.new_int_var(1, self.end + 1, "")
        life = self.model.new_interval_var(made, size, self.first_end[v] + 1, "")
        self._live(life, v)
        if producer in self.again:
            self.second_end[v] = self.model.new_int_var(0, self.end, "")
            start, size = self.start[producer], self.model.new_int_var(1, self.end + 1, "")
            stop, there = self.second_end[v] + 1, self.again[producer]
            self._live(self.model.new_optional_interval_var(start, size, stop, there, ""), v)

    def _live(self, life: cp_model.IntervalVar, v: int) -> None:
        self.lives.append(life)
        self.demands.append(self.problem.values[v].nbytes)

    def _segment_end(self, moment: int) -> int:
        ends = [self.moment(b.backward[-1]) for b in self.chain.blocks if b.backward]
        return min(end for end in ends if end >= moment)

    def _add_read(self, v: int, q: int) -> None:
        """Require the first or the second life of `v` at a read by backward or by a re-run."""
        producer = self.problem.producers()[v]
        if q < self.forward and q not in self.again:
            return
        at = self.moment(q) if q >= self.forward else self.start[q]
        reads = [self.again[q]] if q < self.forward else []
        if producer not in self.again:
            self.model.add(self.first_end[v] >= at).only_enforce_if(reads)
            return
        second = self.model.new_bool_var("")
        stage = q - self.forward if q >= self.forward else self.stage[q]
        self.model.add_implication(second, self.again[producer])
        self.model.add(self.stage[producer] <= stage).only_enforce_if(second)
        self.model.add(self.second_end[v] >= at).only_enforce_if(second)
        self.model.add(self.first_end[v] >= at).only_enforce_if([second.negated(), *reads])


def row(layers: int, share: int, solver: Solver, seconds: float) -> tuple[str, ...]:
    """Return one line of the table."""
    budget = solver.plain.peak_bytes * share // 100
    problem, unit = in_units(solver.problem)
    plain_us = solver.plain.time_us
    start = time.process_time()
    try:
        found: Solution = solver.solve(budget)
    except InfeasibleError:
        return (str(layers), f"{share} %", "infeasible", "", "", "", "")
    used = time.process_time() - start
    oracle = Oracle(problem, partition(problem), budget // unit)
    oracle.build()
    oracle.hint(found.schedule)
    engine = cp_model.CpSolver()
    engine.parameters.max_time_in_seconds = seconds
    engine.parameters.num_workers = 2
    status = engine.solve(oracle.model)
    known = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    scale = 100 / TICKS_PER_US / plain_us
    ours = f"{100 * (found.replay.time_us / plain_us - 1):.2f}"
    theirs = f"{engine.objective_value * scale:.2f}" if known else "-"
    bound = f"{engine.best_objective_bound * scale:.2f}"
    name = engine.status_name(status).lower()
    return (str(layers), f"{share} %", ours, f"{used:.1f}", theirs, name, bound)


def main() -> None:
    """Print the table: extra time in percent, at shares of the peak with nothing re-run."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 300.0
    rows = []
    for layers, shares in SHARES.items():
        build, inputs = step_of(Shape(layers=layers, vocabulary=8192, output="loss"))
        problem = fake_problem(build, inputs, RATES, torch.bfloat16)
        # the model has no results that are written over an input
        solver = Solver(problem.in_new_memory(), "auto")
        rows += [row(layers, share, solver, seconds) for share in shares]
    print(f"# GPT layers against CP-SAT, {seconds:.0f} s for each budget on two threads\n")
    print("Width 1024, batch 8 × 1024, vocabulary 8192, bf16, the loss inside; extra time in % at")
    print("shares of the peak with nothing re-run. A bound holds for CP-SAT's class only.\n")
    print_table(HEAD, rows)


if __name__ == "__main__":
    main()
