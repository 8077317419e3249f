"""Random legal schedules: extra re-runs, also across blocks; backward runs in another order."""

from __future__ import annotations

from random import Random

from remat_gen.solver.blocks.partition import partition
from remat_gen.solver.blocks.simple_programs import keep_all
from remat_gen.solver.improve.problem_arrays import ProblemArrays
from remat_gen.solver.improve.run_order import spans
from remat_gen.solver.improve.run_timeline import timeline_of
from remat_gen.solver.law.liveness import prune, to_schedule
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.offload.copy_places import with_copies
from remat_gen.solver.offload.offload_search import longest_away, with_fetch


def random_schedule(problem: Problem, seed: int, limit: int, share: float) -> Schedule:
    """Re-run about `share` of the operations before backward ones, in blocks of at most `limit`.

    Before a backward operation some operations that can run again do, in traced order; what that
    makes useless is pruned, and the liveness decides what is retained.
    """
    return to_schedule(problem, random_program(problem, Random(seed), limit, share))


def random_program(problem: Problem, random: Random, limit: int, share: float) -> Program:
    """Return the program of such a schedule."""
    program = keep_all(problem, partition(problem, limit))
    again = [p for p in range(problem.forward_count) if problem.operations[p].rerunnable]
    segments = [
        segment if index < program.block_count else _with_reruns(segment, again, random, share)
        for index, segment in enumerate(program.segments)
    ]
    return prune(problem, Program(tuple(segments)))


def random_order(problem: Problem, seed: int, limit: int, share: float) -> Schedule:
    """Return such a schedule with its runs moved, each once on average, to any legal place."""
    random = Random(seed)
    program = random_program(problem, random, limit, share)
    timeline = timeline_of(ProblemArrays(problem), program)
    for _ in range(timeline.length):
        y = random.randrange(timeline.length)
        low, high = spans(timeline)
        timeline = timeline.moved(y, random.randint(int(low[y]), int(high[y])))
    return to_schedule(problem, prune(problem, timeline.program()))


def random_travels(problem: Problem, seed: int, limit: int, share: float) -> Schedule:
    """Return such a schedule in which half of what may go to the host does, at any budget."""
    random = Random(seed)
    program = random_program(problem, random, limit, share)
    for v in longest_away(problem, program):
        if random.random() < 0.5:
            program = with_fetch(problem, program, v)
    peak = replay(problem, to_schedule(problem, keep_all(problem, partition(problem)))).peak_bytes
    return with_copies(problem, program, random.choice((0, peak // 2, 2 * peak)))


def _with_reruns(
    segment: tuple[int, ...], again: list[int], random: Random, share: float
) -> tuple[int, ...]:
    runs: list[int] = []
    for t in segment:
        if random.random() < 0.3:
            runs += [p for p in again if random.random() < share]
        runs.append(t)
    return tuple(runs)
