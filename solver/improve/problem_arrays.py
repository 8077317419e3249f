"""A problem as arrays: what each operation touches, to measure programs without a Python loop."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from remat_gen.solver.law.pins import made_again
from remat_gen.solver.law.problem import Held, Operation, Problem

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MADE, READ = 0, 1  # in this order: a given value is there before the first step that reads it
PLACE_BITS = 32  # of a touch: twice the position, and made or read; what is above is the value


class ProblemArrays:
    """Backward operations run again in bare graphs only.

    Operation p has the touches `touches[first[p]:first[p] + counts[p]]`, as at position 0.
    `given` leaves out what is freed unread; `appears` marks the values in it. `read_bytes` are
    those of an operation's inputs that can be freed; `remakeable` values take memory, can be freed
    and made again. `may_go` are those that can be made again, with or without bytes; `producer_of`
    has 0 for given values. `times`, `sizes` and `may_go` are lists, for single look-ups;
    `kinds_of` are equal for operations that do the same work. `recompute` marks the values that
    must not be there when backward begins.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        operations, values = problem.operations, problem.values
        self.times = [o.time_us for o in operations]
        self.time_us = np.array(self.times, dtype=np.float64)
        self.extra_bytes = _ints([problem.extra_bytes(o) for o in operations])
        self.kinds_of: list[object] = [o.signature or p for p, o in enumerate(operations)]
        self.ordered = _flags([o.ordered for o in operations])
        self.sizes = [value.nbytes for value in values]
        self.nbytes = _ints(self.sizes)
        self.free = _flags([value.held is Held.FREE for value in values])
        self.to_the_end = _flags([value.held is Held.STEP for value in values])
        self.recompute = _flags([value.recompute for value in values])
        self.any_recompute = bool(self.recompute.any())
        counts = [len(o.inputs) + len(o.outputs) for o in operations]
        self.touches = _ints([touch for operation in operations for touch in _touches(operation)])
        self.first = _ints([0, *accumulate(counts)][:-1])
        self.counts = _ints(counts)
        read = {v for operation in operations for v in operation.inputs}
        self.given = _ints([v for v in problem.given if not self.free[v] or v in read])
        self.appears = np.zeros(len(values), dtype=np.bool_)
        self.appears[self.given] = True
        free_reads = ([v for v in o.inputs if self.free[v]] for o in operations)
        self.read_bytes = _ints([sum(self.sizes[v] for v in read) for read in free_reads])
        again = made_again(problem, operations[: problem.forward_count] or operations)
        self.may_go = [v in again for v in range(len(values))]
        self.remakeable = _flags(self.may_go) & (self.nbytes > 0)
        self.producers = problem.producers()
        self.producer_of = _ints([self.producers.get(v, 0) for v in range(len(values))])


def _touches(operation: Operation) -> Iterator[int]:
    yield from ((v << PLACE_BITS) + READ for v in operation.inputs)
    yield from ((v << PLACE_BITS) + MADE for v in operation.outputs)


def _ints(numbers: list[int]) -> Ints:
    return np.array(numbers, dtype=np.int64)


def _flags(truths: list[bool]) -> Flags:
    return np.array(truths, dtype=np.bool_)
