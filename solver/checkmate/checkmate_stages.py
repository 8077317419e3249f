"""The stages of Checkmate: in which an operation runs for the first time, after re-runs for it.

Source: Paras Jain, Ajay Jain, Aniruddha Nrusimha, Amir Gholami, Pieter Abbeel, Kurt Keutzer, Ion
Stoica and Joseph E. Gonzalez, "Checkmate: Breaking the Memory Wall with Optimal Tensor
Rematerialization", MLSys 2020 (arXiv:1910.02653): "frontier-advancing stages". Stages follow the
given order; in a stage the operations before its own may run again, each once, in that order.

- A bare graph has a stage for each node, and may re-run all nodes before it.
- A training problem has one for each backward operation; re-runs are those of forward operations.
  What forward has resident is known but for the values that are retained for the first stage.

Values that a stage decides about are *carried* into it or not. All others are there at known times.
"""

from __future__ import annotations

from dataclasses import dataclass

from remat_gen.solver.blocks.block_chain import Chain, needed_values
from remat_gen.solver.law.pins import recomputed
from remat_gen.solver.law.problem import Held, Problem


@dataclass(frozen=True, slots=True)
class CheckmateStage:
    """Re-runs that may help, in order, then `last`; `fixed_bytes` are there all the time.

    `carried` are the values that may be there already when the stage begins.
    """

    last: int
    again: tuple[int, ...]
    carried: tuple[int, ...]
    fixed_bytes: int


@dataclass(frozen=True, slots=True)
class ForwardStep:
    """A forward operation: bytes inside it in any case, and values that count if retained."""

    inside_bytes: int
    retained: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CheckmateStages:
    """The stages of a problem; `producer` has the values that stages decide about."""

    problem: Problem
    forward: tuple[ForwardStep, ...]
    stages: tuple[CheckmateStage, ...]
    producer: dict[int, int]

    def made_bytes(self, p: int) -> int:
        """Return what an operation needs beside what is there: all outputs and its workspace."""
        operation = self.problem.operations[p]
        made = sum(self.problem.values[v].nbytes for v in operation.outputs)
        return made + self.problem.extra_bytes(operation)

    def decided(self, values: tuple[int, ...]) -> list[int]:
        """Return those of `values` that stages decide about."""
        return [v for v in dict.fromkeys(values) if v in self.producer]


def stages_of(problem: Problem, chain: Chain | None) -> CheckmateStages:
    """Return the stages of a problem; `chain` has the segments of a training problem."""
    decided = _decided(problem)
    producer = {v: p for v, p in problem.producers().items() if v in decided}
    readers = _readers(problem)
    useful = _useful_until(problem, producer, readers)
    until = {v: max(_served(problem, p, useful) for p in readers[v]) for v in producer}
    fixed = _fixed_bytes(problem, chain, decided)
    stages = []
    for t in range(problem.forward_count, len(problem.operations)):
        made_before = [p for p in useful if p < (problem.forward_count or t)]
        again = tuple(p for p in made_before if useful[p] >= t)
        barred = recomputed(problem) if t == problem.forward_count else frozenset()
        carried = tuple(
            v
            for v, p in producer.items()
            if p < (problem.forward_count or t) and until[v] >= t and v not in barred
        )
        stages.append(CheckmateStage(t, again, carried, fixed[t]))
    return CheckmateStages(problem, _forward_steps(problem, producer), tuple(stages), producer)


def _decided(problem: Problem) -> set[int]:
    forward = problem.forward_count
    if not forward:
        read = {v for operation in problem.operations for v in operation.inputs}
        return {v for v in read if problem.values[v].held is Held.FREE}
    return {v for v in needed_values(problem) if problem.values[v].held is Held.FREE}


def _readers(problem: Problem) -> dict[int, list[int]]:
    readers: dict[int, list[int]] = {}
    for p, operation in enumerate(problem.operations):
        for v in operation.inputs:
            readers.setdefault(v, []).append(p)
    return readers


def _useful_until(
    problem: Problem, producer: dict[int, int], readers: dict[int, list[int]]
) -> dict[int, int]:
    """Return for each operation that may run again the last stage that it can help."""
    useful: dict[int, int] = {}
    for p in range((problem.forward_count or len(problem.operations)) - 1, -1, -1):
        operation = problem.operations[p]
        made = [v for v in operation.outputs if v in producer]
        if operation.rerunnable and made:
            useful[p] = max(_served(problem, r, useful) for v in made for r in readers[v])
    return dict(sorted(useful.items()))


def _served(problem: Problem, reader: int, useful: dict[int, int]) -> int:
    """Return the last stage in which an operation may read: its own, or that of a re-run."""
    own = reader if problem.operations[reader].backward else -1
    return max(own, useful.get(reader, -1))


def _forward_steps(problem: Problem, producer: dict[int, int]) -> tuple[ForwardStep, ...]:
    """Walk forward with nothing retained; STEP- and SEGMENT-held values stay once made."""
    forward = problem.operations[: problem.forward_count]
    last = {v: p for p, operation in enumerate(forward) for v in operation.inputs}
    steps = []
    made: list[int] = []
    for p, operation in enumerate(forward):
        there = [v for v in made if last.get(v, -1) >= p or problem.values[v].held is not Held.FREE]
        nbytes = sum(problem.values[v].nbytes for v in (*there, *operation.outputs))
        retained = tuple(v for v in made if v in producer and v not in there)
        steps.append(ForwardStep(nbytes + problem.extra_bytes(operation), retained))
        made += operation.outputs
    return tuple(steps)


def _fixed_bytes(problem: Problem, chain: Chain | None, decided: set[int]) -> dict[int, int]:
    """Return for each stage the bytes of the values there that stages do not decide about."""
    lives = _fixed_lives(problem, chain, decided)
    return {
        t: sum(problem.values[v].nbytes for v, (start, stop) in lives.items() if start < t <= stop)
        for t in range(problem.forward_count, len(problem.operations))
    }


def _fixed_lives(
    problem: Problem, chain: Chain | None, decided: set[int]
) -> dict[int, tuple[int, int]]:
    """Return (made at, last stage) of all other values; -1 for what is there before backward.

    A SEGMENT-held forward value is taken to stay to the end, which is never too little.
    """
    forward, end = problem.forward_count, len(problem.operations)
    last = {v: p for p, operation in enumerate(problem.operations) for v in operation.inputs}
    made = problem.producers() | dict.fromkeys(problem.given, -1)
    lives = {}
    for v, p in made.items():
        held = problem.values[v].held
        if v in decided:
            continue
        if held is Held.FREE:
            lives[v] = (p, last.get(v, -1))
        elif held is Held.STEP or chain is None or 0 <= p < forward:
            lives[v] = (p, end)
        else:
            lives[v] = (p, _end_of_segment(chain, max(p, last.get(v, -1))))
    return lives


def _end_of_segment(chain: Chain, p: int) -> int:
    """Return the last operation of the backward segment of operation p (-1: of the first one)."""
    order = [block.backward for block in reversed(chain.blocks)]
    if p < 0:
        return order[0][-1] if order[0] else -1
    return next(backward[-1] for backward in order if p in backward)
