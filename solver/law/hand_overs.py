"""Where in a block's backward gradients of parameters leave, before it ends.

Autograd accumulates what a node returns when the node has run. A block whose gradients are large is
several nodes, so that they are accumulated, and their memory is free, as soon as in eager's step;
and DistributedDataParallel sends its buckets as soon. A node costs the host some 20 µs: gradients
that are smaller than the least bucket wait for a larger one, or for the block's end.
"""

from __future__ import annotations

from collections.abc import Sequence

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Run, Step

LARGE_BYTES = 1 << 20  # DistributedDataParallel's first bucket: no other of the default is smaller


def hand_overs(problem: Problem, steps: Sequence[Step]) -> frozenset[int]:
    """Return the runs before which gradients leave, by index among a backward segment's steps.

    They leave behind operations that follow each other and make gradients, one of them large; the
    last such ones of a segment leave with its end.
    """
    runs = [(i, step.operation) for i, step in enumerate(steps) if isinstance(step, Run)]
    found: list[int] = []
    ended: list[int] = []
    large = False  # one waits
    for i, p in runs:
        made = [problem.values[v] for v in problem.operations[p].outputs]
        sizes = [value.nbytes for value in made if value.leaves]
        if problem.operations[p].outside:
            ended.append(i)
        elif large and not sizes:
            found.append(i)
            large = False
        large = large or any(size >= LARGE_BYTES for size in sizes)
    return frozenset([*ended, *(found if large else found[:-1])])
