"""One block on its own: small numbers, so that identical blocks are equal objects.

What enters it from earlier forward operations is always there while it runs, and paid by whoever
retains the frontier; gradients that only pass through are the chain's business, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from remat_gen.solver.blocks.block_chain import Chain
from remat_gen.solver.law.problem import Held, Problem


class Role(Enum):
    """What decides how long a value of the block lives."""

    OWN = "own"  # made by its forward; the options decide
    EXIT = "exit"  # own, and in the frontier that leaves the block
    PINNED = "pinned"  # own, there from its forward to its backward in any case
    OUTPUT = "output"  # own, held until the step ends
    ENTERING = "entering"  # a gradient from later blocks that dies here
    THROUGH = "through"  # a gradient from later blocks, read here, there until the block's end
    GRADIENT = "gradient"  # made here, dies here
    LEAVING = "leaving"  # made here, there until the block's end


@dataclass(frozen=True, slots=True)
class LocalValue:
    """A value's bytes and role.

    `recompute`: an own one that backward does not find retained. `spent`: an exit that nothing
    reads after the first run.
    """

    nbytes: int
    role: Role
    recompute: bool = False
    spent: bool = False


@dataclass(frozen=True, slots=True)
class LocalOperation:
    """An operation over the block's values."""

    time_us: float
    extra_bytes: int  # inside, beside what is there before and what is made
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    rerunnable: bool


@dataclass(frozen=True, slots=True)
class LocalBlock:
    """Operations by position in the block: the k-th forward one, the k-th backward one."""

    forward: tuple[LocalOperation, ...]
    backward: tuple[LocalOperation, ...]
    values: tuple[LocalValue, ...]

    def producers(self) -> dict[int, int]:
        return {v: p for p, operation in enumerate(self.forward) for v in operation.outputs}

    def decided(self, v: int) -> bool:
        """Whether options decide if a value is retained."""
        return self.values[v].role in (Role.OWN, Role.EXIT)

    def exits(self) -> set[int]:
        """Return the values in the frontier that leaves the block."""
        return {v for v, value in enumerate(self.values) if value.role is Role.EXIT}

    def regained(self) -> set[int]:
        """Return the exits that a re-run of the block makes again."""
        return {v for v in self.exits() if not self.values[v].spent}

    def bytes_of(self, role: Role) -> int:
        return sum(value.nbytes for value in self.values if value.role is role)


@dataclass(frozen=True, slots=True)
class Gradients:
    """Where gradients live: made in block `made` (n: given), last read in block `read` (-1)."""

    made: dict[int, int]
    read: dict[int, int]

    def frontier(self, j: int) -> list[int]:
        """Return the gradients made by blocks >= j that blocks < j read."""
        return [v for v, block in self.made.items() if block >= j and -1 < self.read[v] < j]


def gradients(problem: Problem, chain: Chain) -> Gradients:
    """Locate the values that backward makes or is given."""
    n = len(chain.blocks)
    made = dict.fromkeys(problem.given, n)
    read = dict.fromkeys(problem.given, -1)
    for i in range(n - 1, -1, -1):
        for t in chain.blocks[i].backward:
            made.update(dict.fromkeys(problem.operations[t].outputs, i))
            read.update(dict.fromkeys(problem.operations[t].outputs, -1))
            read.update({v: i for v in problem.operations[t].inputs if v in read})
    return Gradients(made, read)


def localised(problem: Problem, chain: Chain, grads: Gradients) -> tuple[LocalBlock, ...]:
    """Return the blocks of a chain, the values of each numbered in order of appearance."""
    return tuple(_local(problem, chain, grads, i) for i in range(len(chain.blocks)))


def _local(problem: Problem, chain: Chain, grads: Gradients, i: int) -> LocalBlock:
    block = chain.blocks[i]
    number: dict[int, int] = {}
    values: list[LocalValue] = []

    def add(v: int, role: Role) -> None:
        number[v] = len(values)
        value = problem.values[v]
        recompute = value.recompute and role is Role.OWN
        spent = role is Role.EXIT and v not in chain.needed
        values.append(LocalValue(value.nbytes, role, recompute, spent))

    def local(p: int) -> LocalOperation:
        operation = problem.operations[p]
        for v in operation.outputs:
            add(v, _made_role(problem, chain, grads, i, v))
        for v in operation.inputs:  # gradients of later blocks, at their first use
            held = problem.values[v].held
            if v not in number and v in grads.made and held is not Held.STEP:
                dies = grads.read[v] == i and held is Held.FREE
                add(v, Role.ENTERING if dies else Role.THROUGH)
        return LocalOperation(
            operation.time_us,
            problem.extra_bytes(operation),
            tuple(number[v] for v in operation.inputs if v in number),
            tuple(number[v] for v in operation.outputs),
            operation.rerunnable,
        )

    forward = tuple(local(p) for p in range(block.start, block.stop))
    return LocalBlock(forward, tuple(local(t) for t in block.backward), tuple(values))


def _made_role(problem: Problem, chain: Chain, grads: Gradients, i: int, v: int) -> Role:
    """Return the role of a value that block i makes."""
    held = problem.values[v].held
    if v in grads.made:
        dies = held is Held.FREE and grads.read[v] in (-1, i)
        return Role.GRADIENT if dies else Role.LEAVING
    if held is Held.STEP:
        return Role.OUTPUT
    if v in chain.pinned or held is Held.SEGMENT:
        return Role.PINNED
    return Role.EXIT if v in chain.frontiers[i + 1] else Role.OWN
