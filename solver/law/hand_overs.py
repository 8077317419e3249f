"""Where in a block's backward gradients of parameters leave, before it ends.

Autograd accumulates what a node returns when the node has run. A block whose gradients are large is
several nodes, so that they are accumulated, and their memory is free, as soon as in eager's step;
and DistributedDataParallel sends its buckets as soon. A node costs the host some 20 µs: gradients
that are smaller than the least bucket wait for a larger one, or for the block's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Run, Step

LARGE_BYTES = 1 << 20  # DistributedDataParallel's first bucket: no other of the default is smaller


def hand_overs(problem: Problem, steps: Sequence[Step]) -> frozenset[int]:
    """Return the runs, by their index among a backward segment's steps, before which gradients leave.

    They leave behind operations that follow each other and make gradients, one of them large; the
    last such ones of a segment leave with its end.
    """
    runs = [(i, step.operation) for i, step in enumerate(steps) if isinstance(step, Run)]
    found: list[int] = []
    large = False  # there is one that waits
    for i, p in runs:
        made = list(leaving(problem, p))
        if large and not made:
            found.append(i)
            large = False
        large = large or any(problem.values[v].nbytes >= LARGE_BYTES for v in made)
    # behind the last large one there is no more to wait for than the segment's end
    return frozenset(found if large else found[:-1])


def leaving(problem: Problem, operation: int) -> Iterator[int]:
    """Yield the gradients that an operation makes and that leave when their node ends."""
    outputs = problem.operations[operation].outputs
    return (v for v in outputs if problem.values[v].leaves)


def all_leaving(problem: Problem, operations: Iterable[int]) -> set[int]:
    """Return the gradients that some operations make and that leave when their node ends."""
    return {v for p in operations for v in leaving(problem, p)}
