"""The problem that is left where all re-runs but those of some operations are decided.

Each decided re-run becomes an operation of its own in backward, whose results are values of their
own: from there on backward reads those. What is decided keeps its order, what is free may run
again: any search of whole graphs finds the best re-runs of the free operations beside the others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from remat_gen.solver.law.problem import Held, Operation, Problem, Value


@dataclass(frozen=True, slots=True)
class FixedReruns:
    """`operations[i]` of the problem is operation `original[i]` of the one that was frozen."""

    problem: Problem
    original: tuple[int, ...]

    def runs(self, found: Sequence[int]) -> tuple[int, ...]:
        """Return the runs of the original problem."""
        return tuple(self.original[p] for p in found)


def frozen(problem: Problem, runs: Sequence[int], free: Collection[int]) -> FixedReruns:
    """Freeze `runs` but for the operations in `free`.

    Forward ones of these may run again, and their re-runs are left out; backward ones may move.
    """
    total = problem.forward_count
    operations = [
        replace(operation, rerunnable=operation.rerunnable and p in free)
        for p, operation in enumerate(problem.operations[:total])
    ]
    undecided = {v for p in free for v in problem.operations[p].outputs}
    values = [
        replace(value, recompute=value.recompute and v in undecided)
        for v, value in enumerate(problem.values)
    ]
    original = list(range(total))
    newest: dict[int, int] = {}
    for p in runs[total:]:
        operation = problem.operations[p]
        if operation.backward or p not in free:
            decided = _decided(operation, newest, values, len(original))
            operations.append(replace(decided, ordered=operation.ordered or p not in free))
            newest.update(zip(operation.outputs, decided.outputs, strict=True))
            original.append(p)
    left = replace(problem, operations=tuple(operations), values=tuple(values))
    return FixedReruns(left, tuple(original))


def _decided(
    operation: Operation, newest: dict[int, int], values: list[Value], number: int
) -> Operation:
    """Return a run of backward as an operation; a re-run makes values of its own."""
    outputs = operation.outputs
    if not operation.backward:
        outputs = tuple(range(len(values), len(values) + len(operation.outputs)))
        values += [
            replace(values[v], name=f"{values[v].name} {number}", held=Held.FREE, recompute=False)
            for v in operation.outputs
        ]
    return replace(
        operation,
        name=f"{operation.name} {number}",
        inputs=tuple(newest.get(v, v) for v in operation.inputs),
        outputs=outputs,
        backward=True,
        rerunnable=False,
        over=None if operation.over is None else newest.get(operation.over, operation.over),
    )
