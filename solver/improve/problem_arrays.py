"""A problem as arrays: what each operation touches, to measure programs without a Python loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from remat_gen.solver.law.pins import made_again
from remat_gen.solver.law.problem import Held, Operation, Problem

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MADE, READ = 0, 1  # in this order: a given value is there before the first step that reads it
PLACE_BITS = 32  # of a touch: twice the position, and made or read; what is above is the value


@dataclass(frozen=True, slots=True)
class ProblemArrays:
    """Operation p has the touches `touches[first[p]:first[p] + counts[p]]`, as at position 0.

    `given` leaves out what is freed unread; `appears` marks the values in it. `read_bytes` are
    those of an operation's inputs that can be freed; `remakeable` values take memory, can be freed
    and made again. `may_go` are those that can be made again, with or without bytes; `producer_of`
    has 0 for given values. `times`, `sizes` and `may_go` are lists, for single look-ups;
    `kinds_of` are equal for operations that do the same work. `recompute` marks the values that
    must not be there when backward begins.
    """

    problem: Problem
    time_us: npt.NDArray[np.float64]
    extra_bytes: Ints
    nbytes: Ints
    free: Flags
    to_the_end: Flags
    touches: Ints
    first: Ints
    counts: Ints
    given: Ints
    appears: Flags
    read_bytes: Ints
    remakeable: Flags
    producers: dict[int, int]
    producer_of: Ints
    times: list[float]
    sizes: list[int]
    may_go: list[bool]
    kinds_of: list[object]
    recompute: Flags
    any_recompute: bool
    ordered: Flags


def arrays_of(problem: Problem) -> ProblemArrays:
    """Return a problem's arrays: backward operations run again in bare graphs only."""
    operations, values = problem.operations, problem.values
    read = {v for operation in operations for v in operation.inputs}
    held = [value.held for value in values]
    given = [v for v in problem.given if held[v] is not Held.FREE or v in read]
    counts = [len(o.inputs) + len(o.outputs) for o in operations]
    producers = problem.producers()
    again = made_again(problem, operations[: problem.forward_count] or operations)
    may_go = [v in again for v in range(len(values))]
    appears = np.zeros(len(values), dtype=np.bool_)
    appears[given] = True
    return ProblemArrays(
        problem,
        np.array([o.time_us for o in operations], dtype=np.float64),
        _ints([problem.extra_bytes(o) for o in operations]),
        _ints([value.nbytes for value in values]),
        np.array([h is Held.FREE for h in held], dtype=np.bool_),
        np.array([h is Held.STEP for h in held], dtype=np.bool_),
        _ints([touch for operation in operations for touch in _touches(operation)]),
        _ints([0, *accumulate(counts)][:-1]),
        _ints(counts),
        _ints(given),
        appears,
        _ints([_free_bytes(problem, o.inputs) for o in operations]),
        np.array([go and value.nbytes > 0 for go, value in zip(may_go, values, strict=True)]),
        producers,
        _ints([producers.get(v, 0) for v in range(len(values))]),
        [o.time_us for o in operations],
        [value.nbytes for value in values],
        may_go,
        [o.signature or p for p, o in enumerate(operations)],
        np.array([value.recompute for value in values], dtype=np.bool_),
        any(value.recompute for value in values),
        np.array([o.ordered for o in operations], dtype=np.bool_),
    )


def _touches(operation: Operation) -> Iterator[int]:
    yield from ((v << PLACE_BITS) + READ for v in operation.inputs)
    yield from ((v << PLACE_BITS) + MADE for v in operation.outputs)


def _free_bytes(problem: Problem, chosen: tuple[int, ...]) -> int:
    values = [problem.values[v] for v in chosen]
    return sum(value.nbytes for value in values if value.held is Held.FREE)


def _ints(numbers: list[int]) -> Ints:
    return np.array(numbers, dtype=np.int64)
