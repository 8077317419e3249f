"""Pins: values that a user wants kept, or recomputed, whatever a search would rather do.

A *kept* value's operation may not run again (`Operation.rerunnable`). A *recomputed* value is not
there when backward begins (`Value.recompute`); the replay refuses a schedule that breaks this. No
strategy needs to know: runs that leave one in place are *honoured*, its operation runs again before
the first read in backward, and only then judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

from remat_gen.solver.law.problem import Held, Operation, Problem
from remat_gen.solver.law.program import Program


def pinned(problem: Problem, keep: Set[int], recompute: Set[int]) -> Problem:
    """Return the problem in which some values are kept and others recomputed.

    Raises:
        ValueError: a value is to be recomputed that cannot be, or that is kept as well.
    """
    possible = recomputable(problem)
    kept = {p for p, o in enumerate(problem.operations) if not keep.isdisjoint(o.outputs)}
    producers = problem.producers()
    for v in sorted(recompute):
        if v not in possible or producers[v] in kept:
            raise ValueError(f"{problem.values[v].name} cannot be recomputed")
    here = keep | recompute
    operations = tuple(
        replace(o, rerunnable=o.rerunnable and p not in kept)
        for p, o in enumerate(problem.operations)
    )
    values = tuple(
        replace(value, recompute=v in recompute, travels=value.travels and v not in here)
        for v, value in enumerate(problem.values)
    )
    return replace(problem, operations=operations, values=values)


def unpinned(problem: Problem) -> Problem:
    """Return the problem in which no value must be recomputed; what is kept costs no plain step."""
    values = tuple(replace(value, recompute=False) for value in problem.values)
    return replace(problem, values=values)


def recomputable(problem: Problem) -> frozenset[int]:
    """Return the values of forward that can be made again."""
    return made_again(problem, problem.operations[: problem.forward_count])


def made_again(problem: Problem, operations: Iterable[Operation]) -> frozenset[int]:
    """Return what a second run of some operations gives back and nobody else holds."""
    return frozenset(
        v
        for operation in operations
        if operation.rerunnable
        for v in operation.outputs
        if problem.values[v].held is Held.FREE
    )


def recomputed(problem: Problem) -> frozenset[int]:
    """Return the values that are not there when backward begins."""
    return frozenset(v for v, value in enumerate(problem.values) if value.recompute)


def forced(problem: Problem) -> tuple[int, ...]:
    """Return the operations that every schedule runs again, in order: no pins, none.

    Backward reads what they make, directly or through one another.
    """
    gone = recomputed(problem)
    if not gone:
        return ()
    forward = problem.forward_count
    read = {v for operation in problem.operations[forward:] for v in operation.inputs}
    found = []
    for p in range(forward - 1, -1, -1):
        operation = problem.operations[p]
        if any(v in gone and v in read for v in operation.outputs):
            found.append(p)
            read.update(operation.inputs)
    return tuple(reversed(found))


def honoured(problem: Problem, program: Program) -> Program:
    """Return the program with the re-runs that recomputed values need; itself where it has them."""
    runs = program.flat()
    added = _missing(problem, runs, program.starts()[program.block_count])
    if not added:
        return program
    return program.replaced({at: (*more, runs[at]) for at, more in added.items()})


def honoured_runs(problem: Problem, runs: Sequence[int]) -> tuple[int, ...]:
    """Return forward's runs and then backward's with the re-runs that recomputed values need."""
    forward = problem.forward_count
    return tuple(honoured(problem, Program((tuple(runs[:forward]), tuple(runs[forward:])))).flat())


def _missing(problem: Problem, runs: Sequence[int], boundary: int) -> dict[int, list[int]]:
    """Return the re-runs to add before positions: each before the first read in backward.

    From the last operation to the first, since a re-run that is added reads what earlier ones make.
    """
    gone = recomputed(problem)
    if not gone:
        return {}
    operations, producers = problem.operations, problem.producers()
    read, made = _first_touches(problem, runs, boundary)
    added: dict[int, list[int]] = {}
    for p in sorted({producers[v] for v in gone}, reverse=True):
        wanted = [read[v] for v in operations[p].outputs if v in gone and v in read]
        at = min(wanted, default=len(runs))
        if wanted and at <= made.get(p, len(runs)):
            added.setdefault(at, []).insert(0, p)
            read.update({v: min(at, read.get(v, at)) for v in operations[p].inputs})
    return added


def _first_touches(
    problem: Problem, runs: Sequence[int], boundary: int
) -> tuple[dict[int, int], dict[int, int]]:
    """Return where in backward each value is read first, and where each operation runs first."""
    read: dict[int, int] = {}
    made: dict[int, int] = {}
    for position in range(len(runs) - 1, boundary - 1, -1):
        made[runs[position]] = position
        read.update(dict.fromkeys(problem.operations[runs[position]].inputs, position))
    return read, made
