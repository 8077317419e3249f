"""What would happen with the other choice: retain what is run again, run again what is retained.

The choice alone is replayed first. Where it does not fit the budget any more, the solver adds cheap
re-runs until it does, in several ways, and improves the best; where it leaves room, re-runs that
need not be are left out, the slowest first. Neither is a new search for the optimum.

In a plan that sends values to the host a value may be kept, fetched, or run again. What else
travels goes on travelling; where values are sent, freed and fetched is placed anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from remat_gen.solver.improve.add_reruns import PriceRule, random_taste
from remat_gen.solver.improve.memory_measure import Trial, trial_of
from remat_gen.solver.improve.problem_arrays import ProblemArrays
from remat_gen.solver.improve.ruin_and_recreate import Window
from remat_gen.solver.improve.run_timeline import timeline_of
from remat_gen.solver.law.liveness import prune, to_schedule
from remat_gen.solver.law.pins import pinned
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program, first_runs, program_of
from remat_gen.solver.law.replay import Replay, replay
from remat_gen.solver.law.schedule import Fetch, Run, Schedule
from remat_gen.solver.law.sums import added
from remat_gen.solver.offload.copy_places import fetch_of
from remat_gen.solver.offload.offload_search import OffloadSearch, pruned, with_fetch

WAYS = 24  # to choose re-runs where a schedule has to be repaired
TRIALS = 60  # to improve the best of them


@dataclass(frozen=True, slots=True)
class Outcome:
    """A schedule's figures, and the operations that run more or less often than in the plan."""

    peak_bytes: int
    time_us: float
    more: tuple[int, ...]
    less: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Other:
    """The other choice `alone`; `settled` within the budget, None where nothing was to be done.

    `fits` tells whether a schedule within the budget was found: False where none was looked for.
    """

    alone: Outcome
    settled: Outcome | None
    fits: bool


def retained_instead(
    problem: Problem, schedule: Schedule, v: int, budget_bytes: int | None
) -> Other:
    """Return what happens if a value that is run again is retained; without a budget, alone."""
    p = problem.producers()[v]
    program = program_of(schedule)
    runs = program.flat()
    firsts = first_runs(runs)
    again = {i: () for i, q in enumerate(runs) if q == p and not firsts[i]}
    held = pinned(problem, {v}, frozenset())
    return _settled(held, runs, prune(held, program.replaced(again)), p, budget_bytes)


def run_again_instead(
    problem: Problem, schedule: Schedule, v: int, budget_bytes: int | None
) -> Other | None:
    """Return what happens if a retained value is run again; None where that cannot be.

    It runs again right before backward first reads it, and with it whatever it needs that is not
    there by then.
    """
    producers = problem.producers()
    p = producers[v]
    if not problem.operations[p].rerunnable:
        return None
    program = program_of(schedule)
    runs, turn = program.flat(), program.starts()[program.block_count]
    reads = (x for x in range(turn, len(runs)) if v in problem.operations[runs[x]].inputs)
    at = next(reads, None)
    if at is None:
        return None
    made = _needed_again(problem, runs, p, at)
    again = pinned(problem, frozenset(), {v})
    changed = prune(again, program.replaced({at: (*made, runs[at])}))
    return _settled(again, runs, changed, p, budget_bytes)


def _needed_again(problem: Problem, runs: Sequence[int], p: int, at: int) -> list[int]:
    """Return the operations to run again for p before the run at a position, in traced order.

    An input that cannot be made again, or is there anyway, is read where it is.
    """
    producers, there = problem.producers(), set[int]()
    for q in reversed(runs[at:]):  # what is made before, and read here or later as it is
        there.difference_update(problem.operations[q].outputs)
        there.update(problem.operations[q].inputs)
    needed: set[int] = set()
    stack = [p]
    while stack:
        q = stack.pop()
        if q in needed:
            continue
        needed.add(q)
        missing = [producers[u] for u in problem.operations[q].inputs if u not in there]
        stack += [r for r in missing if problem.operations[r].rerunnable]
    return sorted(needed)


def _settled(
    problem: Problem, before: Sequence[int], changed: Program, p: int, budget_bytes: int | None
) -> Other:
    alone = _outcome(problem, before, changed)
    if budget_bytes is None:
        return Other(alone, None, fits=False)
    trial = trial_of(timeline_of(ProblemArrays(problem), changed))
    if trial.peak_bytes > budget_bytes:
        fitted = _repaired(problem, trial, budget_bytes)
        if fitted is None:
            return Other(alone, None, fits=False)
        trial = fitted
    trial = _without_needless(trial, p, budget_bytes)
    program = trial.timeline.program()
    settled = _outcome(problem, before, program) if program != changed else None
    return Other(alone, settled, fits=True)


def _repaired(problem: Problem, trial: Trial, budget_bytes: int) -> Trial | None:
    """Return a quick program within the budget; the problem's pins hold the choice."""
    plain_us = added(operation.time_us for operation in problem.operations)
    found = []
    for seed in range(WAYS):
        random = Random(seed)
        window = Window(budget_bytes, plain_us, plain_us, random)
        taste = random_taste(random) if seed else PriceRule()
        fitted = window.fit(trial, float("inf"), taste)
        found += [fitted] if fitted is not None else []
    best = min(found, key=lambda t: t.time_us, default=None)
    if best is None:
        return None
    return Window(budget_bytes, plain_us, plain_us, Random(0)).improved(best, TRIALS)


def _without_needless(trial: Trial, p: int, budget_bytes: int) -> Trial:
    """Leave out re-runs that the budget has room for, the slowest first, but none of p."""
    tried: set[int] = set()
    while True:
        timeline = trial.timeline
        again = [x for x in np.flatnonzero(~timeline.firsts).tolist() if timeline.runs[x] != p]
        again = [x for x in again if int(timeline.runs[x]) not in tried]
        if not again:
            return trial
        slowest = max(again, key=lambda x: (timeline.arrays.times[int(timeline.runs[x])], -x))
        tried.add(int(timeline.runs[slowest]))
        less = trial_of(timeline.without([slowest]))
        fits = less.peak_bytes <= budget_bytes and less.time_us < trial.time_us
        if fits and _count(less, p) == _count(trial, p):
            trial = less


def _count(trial: Trial, p: int) -> int:
    return int(np.count_nonzero(trial.timeline.runs == p))


def _outcome(problem: Problem, before: Sequence[int], program: Program) -> Outcome:
    return outcome_of(replay(problem, to_schedule(problem, program)), before, program.flat())


def outcome_of(figures: Replay, before: Iterable[int], now: Iterable[int]) -> Outcome:
    """Return the outcome of a schedule whose runs are other ones than before."""
    was, runs = Counter(before), Counter(now)
    more, less = tuple(sorted((runs - was).elements())), tuple(sorted((was - runs).elements()))
    return Outcome(figures.peak_bytes, figures.time_us, more, less)


def kept_instead(problem: Problem, schedule: Schedule, v: int, budget_bytes: int) -> Other | None:
    """Return what happens if a value that travels, or is run again, stays from forward on."""
    maker, fetch = problem.producers()[v], fetch_of(problem, v)
    program = program_with_fetches(problem, schedule)
    runs = program.flat()
    firsts = first_runs(runs)
    gone = {i: () for i, p in enumerate(runs) if p == fetch or (p == maker and not firsts[i])}
    return _travelling(problem, program, pruned(problem, program.replaced(gone)), budget_bytes)


def sent_instead(problem: Problem, schedule: Schedule, v: int, budget_bytes: int) -> Other | None:
    """Return what happens if a retained value goes to the host; None where it may not."""
    if not problem.values[v].travels:
        return None
    program = program_with_fetches(problem, schedule)
    sent = with_fetch(problem, program, v)
    return None if sent == program else _travelling(problem, program, sent, budget_bytes)


def program_with_fetches(problem: Problem, schedule: Schedule) -> Program:
    """Return what a schedule runs and fetches."""
    return Program(
        tuple(
            tuple(
                step.operation if isinstance(step, Run) else fetch_of(problem, step.value)
                for step in segment.steps
                if isinstance(step, Run | Fetch)
            )
            for segment in schedule.segments
        )
    )


def _travelling(
    problem: Problem, before: Program, after: Program, budget_bytes: int
) -> Other | None:
    found = OffloadSearch(problem, budget_bytes).judged(after)
    if found is None:
        return None
    count = len(problem.operations)
    was, now = ([p for p in program.flat() if p < count] for program in (before, after))
    outcome = outcome_of(found.replay, was, now)
    return Other(outcome, None, fits=outcome.peak_bytes <= budget_bytes)
