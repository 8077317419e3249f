"""Where in a block's backward gradients of parameters leave, before it ends.

Autograd accumulates what a node returns when the node has run. A block whose gradients are large is
several nodes, so that they are accumulated, and their memory is free, as soon as in eager's step;
and DistributedDataParallel sends its buckets as soon. A node costs the host some 20 µs: gradients
that are smaller than the least bucket wait for a larger one, or for the block's end. So do those
whose parameter is still to be read: it may change as its gradient comes, where an optimizer steps
in a hook. Where another block reads it, they wait for that one's end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Run, Schedule, Step

LARGE_BYTES = 1 << 20  # DistributedDataParallel's first bucket: no other of the default is smaller


def waiting_gradients(problem: Problem, schedule: Schedule) -> dict[int, int]:
    """Return by gradient the last segment that reads its parameter, where that is another one."""
    made: dict[int, int] = {}
    waits: dict[int, int] = {}
    for index in range(schedule.block_count, len(schedule.segments)):
        for step in schedule.segments[index].steps:
            if isinstance(step, Run):
                operation = problem.operations[step.operation]
                waits |= {v: index for v in operation.keeps if made.get(v, index) < index}
                for v in operation.outputs:
                    made.setdefault(v, index)
    return waits


def hand_overs(
    problem: Problem, steps: Sequence[Step], waiting_on: Collection[int] = ()
) -> dict[int, frozenset[int]]:
    """Return the gradients that leave, by the run before which they do among a backward segment's.

    They leave behind operations that follow each other and make gradients, one of them large; the
    last such ones of a segment leave with its end. Those that are `waiting_on` do so in another.
    """
    runs = [(i, problem.operations[s.operation]) for i, s in enumerate(steps) if isinstance(s, Run)]
    read = {v: i for i, operation in runs for v in operation.keeps}  # their parameter, last
    found: dict[int, frozenset[int]] = {}
    last = -1
    waiting: list[int] = []
    for i, operation in runs:
        made = [v for v in operation.outputs if problem.values[v].leaves and v not in waiting_on]
        ready = [v for v in waiting if operation.outside or read.get(v, -1) < i]
        if operation.outside and ready:
            found[i] = frozenset(ready)
        elif not made and _any_large(problem, ready):
            found[i], last = frozenset(ready), i
        waiting = [v for v in waiting if v not in found.get(i, ())] + made
    if not _any_large(problem, waiting):
        found.pop(last, None)
    return found


def _any_large(problem: Problem, values: Iterable[int]) -> bool:
    return any(problem.values[v].nbytes >= LARGE_BYTES for v in values)
