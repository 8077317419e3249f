"""One block on its own: small numbers, so that identical blocks are equal objects.

Values that enter a block from earlier forward operations are always there while it runs and are
paid by whoever retains the frontier: they are left out. Gradients that only pass through it are the
chain's business too.
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
    return tuple(_Localiser(problem, chain, grads, i).run() for i in range(len(chain.blocks)))


class _Localiser:
    def __init__(self, problem: Problem, chain: Chain, grads: Gradients, i: int) -> None:
        self.problem, self.chain, self.grads, self.i = problem, chain, grads, i
        self.block = chain.blocks[i]
        self.number: dict[int, int] = {}
        self.values: list[LocalValue] = []

    def run(self) -> LocalBlock:
        forward = [self._operation(p) for p in range(self.block.start, self.block.stop)]
        backward = [self._operation(t) for t in self.block.backward]
        return LocalBlock(tuple(forward), tuple(backward), tuple(self.values))

    def _operation(self, p: int) -> LocalOperation:
        operation = self.problem.operations[p]
        for v in operation.outputs:
            self._add(v, self._made_role(v, operation.backward))
        inputs = [v for v in operation.inputs if v in self.number or self._enters(v)]
        return LocalOperation(
            operation.time_us,
            self.problem.extra_bytes(operation),
            tuple(self.number[v] for v in inputs),
            tuple(self.number[v] for v in operation.outputs),
            operation.rerunnable,
        )

    def _enters(self, v: int) -> bool:
        """Number a gradient of later blocks at its first use; tell whether `v` is one."""
        held = self.problem.values[v].held
        if v not in self.grads.made or held is Held.STEP:
            return False
        dies = self.grads.read[v] == self.i and held is Held.FREE
        self._add(v, Role.ENTERING if dies else Role.THROUGH)
        return True

    def _made_role(self, v: int, backward: bool) -> Role:
        held = self.problem.values[v].held
        if backward:
            dies = held is Held.FREE and self.grads.read[v] in (-1, self.i)
            return Role.GRADIENT if dies else Role.LEAVING
        if held is Held.STEP:
            return Role.OUTPUT
        if v in self.chain.pinned or held is Held.SEGMENT:
            return Role.PINNED
        return Role.EXIT if v in self.chain.frontiers[self.i + 1] else Role.OWN

    def _add(self, v: int, role: Role) -> None:
        self.number[v] = len(self.values)
        value = self.problem.values[v]
        recompute = value.recompute and role is Role.OWN
        spent = role is Role.EXIT and v not in self.chain.needed
        self.values.append(LocalValue(value.nbytes, role, recompute, spent))
