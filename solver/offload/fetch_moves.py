"""Programs with fetches, and the steps by which they are made better: one value after another.

Runs beyond the problem's operations are fetches (see `copy_places`). A program says what runs again
and what is fetched; where values are sent and freed follows.
"""

from __future__ import annotations

from collections.abc import Iterator

from remat_gen.solver.law.liveness import prune
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program, first_runs
from remat_gen.solver.offload.copy_places import fetch_of, with_fetches


def longest_away(problem: Problem, program: Program) -> list[int]:
    """Return the values that could travel, those first that nothing reads for the longest time.

    Steps are like stacks: what is made first is read last, so that it has the most time to travel
    and makes room wherever memory is short.
    """
    gaps: list[tuple[float, int]] = []
    runs, turn = program.flat(), program.starts()[program.block_count]
    count, moment = len(problem.operations), 0.0
    last: dict[int, float] = {}
    seen: set[int] = set()
    for i, p in enumerate(runs):
        if p >= count:
            seen.add(p - count)
            continue
        operation = problem.operations[p]
        if i >= turn:
            new = [v for v in operation.inputs if v not in seen and v in last]
            gaps += [(moment - last[v], v) for v in new if problem.values[v].travels]
            seen.update(operation.inputs, operation.outputs)
        moment += operation.time_us
        if i < turn:
            last.update(dict.fromkeys((*operation.inputs, *operation.outputs), moment))
    return [v for _, v in sorted(gaps, key=lambda gap: (-gap[0], gap[1]))]


def with_fetch(problem: Problem, program: Program, v: int) -> Program:
    """Return the program that fetches a value before backward reads it first."""
    runs, count = program.flat(), len(problem.operations)
    turn = program.starts()[program.block_count]
    for i in range(turn, len(runs)):
        if runs[i] < count and v in problem.operations[runs[i]].inputs:
            return program.replaced({i: [fetch_of(problem, v), runs[i]]})
    return program


def in_place_of_reruns(problem: Problem, program: Program) -> Iterator[Program]:
    """Yield the programs that fetch what one re-run makes, without what it alone is run for."""
    runs, count = program.flat(), len(problem.operations)
    for i, first in enumerate(first_runs(runs)):
        if first or runs[i] >= count:
            continue
        operation = problem.operations[runs[i]]
        read = [v for v in operation.outputs if _is_read(problem, runs, i, v)]
        if read and all(problem.values[v].travels for v in read):
            yield pruned(problem, program.replaced({i: [fetch_of(problem, v) for v in read]}))


def without_fetches(problem: Problem, program: Program) -> Iterator[Program]:
    """Yield the programs without one of the fetches, whose value is kept or made again instead."""
    runs, count = program.flat(), len(problem.operations)
    producers = problem.producers()
    for i, p in enumerate(runs):
        if p < count:
            continue
        yield pruned(problem, program.replaced({i: []}))
        maker = producers[p - count]
        if problem.operations[maker].rerunnable:
            yield pruned(problem, program.replaced({i: [maker]}))


def pruned(problem: Problem, program: Program) -> Program:
    """Return the program without re-runs and fetches of what nothing reads before it is there."""
    return prune(with_fetches(problem), program, required=len(problem.operations))


def _is_read(problem: Problem, runs: list[int], i: int, v: int) -> bool:
    """Tell whether a value is read behind a run before it is made, or fetched, again."""
    count = len(problem.operations)
    for p in runs[i + 1 :]:
        if p >= count:
            if p - count == v:
                return False
        elif v in problem.operations[p].inputs:
            return True
        elif v in problem.operations[p].outputs:
            return False
    return False
