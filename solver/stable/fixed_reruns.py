"""The problem that is left where all re-runs but those of some operations are decided.

A decided re-run is an operation of its own in backward, whose results, values of their own, are
what backward reads from there on. Any search finds the best re-runs of the others beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from remat_gen.solver.law.problem import Held, Operation, Problem, Value


def frozen(
    problem: Problem, runs: Sequence[int], free: Collection[int]
) -> tuple[Problem, tuple[int, ...]]:
    """Freeze `runs` but for operations in `free`; return as well which each operation then is.

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
    return left, tuple(original)


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
