"""Random legal schedules: extra re-runs of any forward operation, also across blocks."""

from __future__ import annotations

from random import Random

from remat_gen.solver.liveness import prune, to_schedule
from remat_gen.solver.partition import partition
from remat_gen.solver.problem import Problem
from remat_gen.solver.program import Program
from remat_gen.solver.schedule import Schedule
from remat_gen.solver.straight import keep_all


def random_schedule(problem: Problem, seed: int, limit: int, share: float) -> Schedule:
    """Re-run about `share` of the operations before backward ones, in blocks of at most `limit`.

    Before a backward operation some operations that can run again do, in traced order; what that
    makes useless is pruned, and the liveness decides what is retained.
    """
    random = Random(seed)
    program = keep_all(problem, partition(problem, limit))
    again = [p for p in range(problem.forward_count) if problem.operations[p].rerunnable]
    segments = [
        segment if index < program.block_count else _with_reruns(segment, again, random, share)
        for index, segment in enumerate(program.segments)
    ]
    return to_schedule(problem, prune(problem, Program(tuple(segments))))


def _with_reruns(
    segment: tuple[int, ...], again: list[int], random: Random, share: float
) -> tuple[int, ...]:
    runs: list[int] = []
    for t in segment:
        if random.random() < 0.3:
            runs += [p for p in again if random.random() < share]
        runs.append(t)
    return tuple(runs)
