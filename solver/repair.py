"""Exchange re-runs: leave out a dear one, then re-run cheaper values until the peak fits again.

The chain recurrence treats equal blocks with equal options where memory is short everywhere; here
single values are exchanged on the exact figures. Work is bounded by counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat_gen.solver.improve import Candidate, candidate, retain_more, without
from remat_gen.solver.liveness import prune
from remat_gen.solver.measure import measure
from remat_gen.solver.problem import Held, Problem
from remat_gen.solver.program import Program, first_runs

WORK = 60_000  # runs measured in all, per budget
ADDITIONS = 8  # re-runs added for one left out
CHAIN = 4  # operations re-run to make one value again
LOWERED = 40  # additions below the smallest peak found otherwise
TRIED = 2  # additions measured per step


def exchange(
    problem: Problem, start: Candidate, above: Sequence[Candidate], budget_bytes: int
) -> Candidate:
    """Return the best program found within the budget.

    `start` fits it; those `above` are quicker, do not fit, and are repaired.
    """
    repair = _Repair(problem, budget_bytes)
    best = _exchanged(repair, start)
    for trial in above:
        fitting = repair.fit(trial, best)
        if fitting is not None:
            best = _exchanged(repair, retain_more(problem, fitting, budget_bytes))
    return best


def lowered(problem: Problem, start: Candidate) -> list[Candidate]:
    """Return programs of ever lower peak, from adding re-runs one by one."""
    found: list[Candidate] = []
    current: Candidate | None = start
    while current is not None and len(found) < LOWERED:
        repair = _Repair(problem, current.peak_bytes - 1)
        current = repair.add(current, float("inf"))
        if current is not None:
            found.append(current)
    return found


def _exchanged(repair: _Repair, best: Candidate) -> Candidate:
    """Leave out each re-run in turn, the dearest first, and repair."""
    repair.work = WORK
    position = 0
    dear = _dear_reruns(repair.problem, best.program)
    while position < len(dear) and repair.work > 0:
        less = without(repair.problem, best.program, dear[position])
        trial = repair.fit(candidate(repair.problem, less), best)
        repair.work -= len(dear)
        position += 1
        if trial is not None:
            best = retain_more(repair.problem, trial, repair.budget)
            dear, position = _dear_reruns(repair.problem, best.program), 0
    return best


def _dear_reruns(problem: Problem, program: Program) -> list[int]:
    runs = program.flat()
    again = [x for x, first in enumerate(first_runs(runs)) if not first]
    return sorted(again, key=lambda x: (-problem.operations[runs[x]].time_us, x))


@dataclass(slots=True)
class _Repair:
    problem: Problem
    budget: int
    work: int = WORK

    def fit(self, trial: Candidate, best: Candidate) -> Candidate | None:
        """Add re-runs to `trial` until it fits; None if it would not be quicker than `best`."""
        for _ in range(ADDITIONS):
            if trial.time_us >= best.time_us or self.work < 0:
                return None
            if trial.peak_bytes <= self.budget:
                return trial
            added = self.add(trial, best.time_us - trial.time_us)
            if added is None:
                return None
            trial = added
        fits = trial.peak_bytes <= self.budget and trial.time_us < best.time_us
        return trial if fits else None

    def add(self, trial: Candidate, time_left: float) -> Candidate | None:
        """Make one value that crosses the peak again after it; None if nothing helps."""
        runs = trial.program.flat()
        inside = measure(self.problem, trial.program).inside
        peak_at = int(inside.argmax())
        excess = trial.peak_bytes - self.budget
        stays = _Stays(self.problem, runs)
        found = []
        for v, read in stays.crossing(peak_at):
            made = stays.remake(v, read)
            cost = sum(self.problem.operations[p].time_us for p in made)
            if made and cost < time_left:
                gain = min(excess, self.problem.values[v].nbytes)
                found.append((cost / gain, read, made))
        for _, read, made in sorted(found)[:TRIED]:
            self.work -= len(runs)
            added = candidate(self.problem, _inserted(self.problem, trial.program, read, made))
            if added.peak_bytes < trial.peak_bytes:
                return added
        return None


def _inserted(problem: Problem, program: Program, at: int, made: tuple[int, ...]) -> Program:
    starts = program.starts()
    segments = [list(segment) for segment in program.segments]
    index = max(i for i, start in enumerate(starts[:-1]) if start <= at)
    offset = at - starts[index]
    segments[index][offset:offset] = made
    return prune(problem, Program(tuple(tuple(segment) for segment in segments)))


class _Stays:
    """When each forward value is in memory: (made, last read) per stay."""

    def __init__(self, problem: Problem, runs: list[int]) -> None:
        self.problem, self.runs = problem, runs
        self.forward = problem.forward_count
        self.producers = problem.producers()
        self.reads: dict[int, list[int]] = {}
        self.stays: dict[int, list[list[int]]] = {}
        for x, p in enumerate(runs):
            for v in problem.operations[p].inputs:
                if v in self.stays:
                    self.stays[v][-1][1] = x
                    self.reads.setdefault(v, []).append(x)
            if p < self.forward:
                for v in problem.operations[p].outputs:
                    self.stays.setdefault(v, []).append([x, x])

    def crossing(self, x: int) -> list[tuple[int, int]]:
        """Return the values that are there at x for a later read, and the first such read."""
        found = []
        touched = self.problem.operations[self.runs[x]]
        for v, stays in self.stays.items():
            value = self.problem.values[v]
            if value.held is not Held.FREE or not value.nbytes or v in touched.inputs:
                continue
            if any(made < x < last for made, last in stays):
                read = next(r for r in self.reads[v] if r > x)
                if read >= self.forward:  # forward runs each operation once
                    found.append((v, read))
        return found

    def remake(self, v: int, at: int) -> tuple[int, ...]:
        """Return the operations that make `v` again before position `at`; empty if too many."""
        chosen: set[int] = set()
        stack = [v]
        while stack:
            p = self.producers[stack.pop()]
            if not self.problem.operations[p].rerunnable or len(chosen) == CHAIN:
                return ()
            chosen.add(p)
            missing = (u for u in self.problem.operations[p].inputs if not self._there(u, at))
            stack.extend(u for u in missing if self.producers[u] not in chosen)
        return tuple(sorted(chosen))

    def _there(self, v: int, at: int) -> bool:
        if self.problem.values[v].held is not Held.FREE or v not in self.stays:
            return True
        return any(made < at <= last for made, last in self.stays[v])
