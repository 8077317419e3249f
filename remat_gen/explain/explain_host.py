"""The other choice in a plan that sends values to the host: keep it, fetch it, or run it again.

What else travels goes on travelling; where values are sent, freed and fetched is placed anew.
"""

from __future__ import annotations

from remat_gen.explain.explain_other import Other, outcome_of
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program, first_runs
from remat_gen.solver.law.schedule import Fetch, Run, Schedule
from remat_gen.solver.offload.copy_places import fetch_of
from remat_gen.solver.offload.fetch_moves import pruned, with_fetch
from remat_gen.solver.offload.offload_search import OffloadSearch


def kept_instead(problem: Problem, schedule: Schedule, v: int, budget_bytes: int) -> Other | None:
    """Return what happens if a value that travels, or is run again, stays from forward on."""
    maker, fetch = problem.producers()[v], fetch_of(problem, v)
    program = program_with_fetches(problem, schedule)
    runs = program.flat()
    firsts = first_runs(runs)
    gone = {i: () for i, p in enumerate(runs) if p == fetch or (p == maker and not firsts[i])}
    return _other(problem, program, pruned(problem, program.replaced(gone)), budget_bytes)


def sent_instead(problem: Problem, schedule: Schedule, v: int, budget_bytes: int) -> Other | None:
    """Return what happens if a retained value goes to the host; None where it may not."""
    if not problem.values[v].travels:
        return None
    program = program_with_fetches(problem, schedule)
    sent = with_fetch(problem, program, v)
    return None if sent == program else _other(problem, program, sent, budget_bytes)


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


def _other(problem: Problem, before: Program, after: Program, budget_bytes: int) -> Other | None:
    found = OffloadSearch(problem, budget_bytes).judged(after)
    if found is None:
        return None
    count = len(problem.operations)
    was, now = ([p for p in program.flat() if p < count] for program in (before, after))
    outcome = outcome_of(found.replay, was, now)
    return Other(outcome, None, fits=outcome.peak_bytes <= budget_bytes)
