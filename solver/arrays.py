"""A problem as arrays: what each operation touches, to measure programs without a Python loop."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from remat_gen.solver.problem import Held, Problem

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MADE, READ = 0, 1  # in this order: a given value is there before the first step that reads it


@dataclass(frozen=True, slots=True)
class ProblemArrays:
    """Operation p touches `touched[first[p]:first[p + 1]]`, as `kinds` says.

    `given` leaves out what is freed unread; `appears` marks the values in it. `read_bytes` are
    those of an operation's inputs that can be freed; `remakeable` values take memory, are made by
    forward and can be freed.
    """

    problem: Problem
    time_us: npt.NDArray[np.float64]
    workspace_bytes: Ints
    nbytes: Ints
    free: Flags
    to_the_end: Flags
    touched: Ints
    kinds: Ints
    first: Ints
    given: Ints
    appears: Flags
    read_bytes: Ints
    remakeable: Flags
    producers: dict[int, int]


def arrays_of(problem: Problem) -> ProblemArrays:
    """Return a problem's arrays."""
    operations, values = problem.operations, problem.values
    read = {v for operation in operations for v in operation.inputs}
    held = [value.held for value in values]
    given = [v for v in problem.given if held[v] is not Held.FREE or v in read]
    touched = [v for o in operations for v in (*o.inputs, *o.outputs)]
    kinds = [k for o in operations for k in [READ] * len(o.inputs) + [MADE] * len(o.outputs)]
    counts = (len(o.inputs) + len(o.outputs) for o in operations)
    appears = np.zeros(len(values), dtype=np.bool_)
    appears[given] = True
    return ProblemArrays(
        problem,
        np.array([o.time_us for o in operations], dtype=np.float64),
        _ints([o.workspace_bytes for o in operations]),
        _ints([value.nbytes for value in values]),
        np.array([h is Held.FREE for h in held], dtype=np.bool_),
        np.array([h is Held.STEP for h in held], dtype=np.bool_),
        _ints(touched),
        _ints(kinds),
        _ints([0, *accumulate(counts)]),
        _ints(given),
        appears,
        _ints([_free_bytes(problem, o.inputs) for o in operations]),
        _remakeable(problem),
        problem.producers(),
    )


def _remakeable(problem: Problem) -> Flags:
    flags = np.zeros(len(problem.values), dtype=np.bool_)
    for operation in problem.operations[: problem.forward_count]:
        for v in operation.outputs:
            value = problem.values[v]
            flags[v] = value.held is Held.FREE and value.nbytes > 0
    return flags


def _free_bytes(problem: Problem, chosen: tuple[int, ...]) -> int:
    values = [problem.values[v] for v in chosen]
    return sum(value.nbytes for value in values if value.held is Held.FREE)


def _ints(numbers: list[int]) -> Ints:
    return np.array(numbers, dtype=np.int64)
