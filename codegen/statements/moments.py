"""What a schedule says at one of its moments: where a storage is, and which results are wanted."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from remat_gen.codegen.expressions.marks import Mark, kept, tangent, value
from remat_gen.codegen.statements.kept_outputs import LeavingBlocks
from remat_gen.codegen.statements.lifetimes import Lifetime, Lifetimes, moments
from remat_gen.ir.graph import Graph, Kind, Operation
from remat_gen.solver.law.problem import Held, Problem
from remat_gen.solver.law.schedule import Free, Run, Schedule, Step


@dataclass(slots=True)
class Now:
    """A moment of a schedule; whoever walks through the steps sets it."""

    graph: Graph
    problem: Problem
    schedule: Schedule
    moment: int = 0
    lifetimes: Lifetimes = field(init=False)
    index: dict[str, int] = field(init=False)  # of each storage among the problem's values
    _steps: list[Step | None] = field(init=False)

    def __post_init__(self) -> None:
        leaving = LeavingBlocks.find(self.graph, self.problem, self.schedule)
        self.lifetimes = Lifetimes(self.problem, self.schedule, leaving)
        self.index = {v.name: i for i, v in enumerate(self.problem.values)}
        self._steps = [step for _, _, step in moments(self.schedule)]

    # -- storages ------------------------------------------------------------------------

    def lifetime(self, v: int) -> Lifetime:
        """Return the stay of a value that is in memory now, or was last."""
        return self.lifetimes.at(v, self.moment)

    def place(self, storage: str) -> Mark:
        """Return where a storage is: kept by a block, an incoming gradient, or a variable."""
        lifetime = self.lifetime(self.index[storage])
        if lifetime.crosses:
            return kept(lifetime.owner, storage)
        if self.graph.storages[storage].kind is Kind.TANGENT:
            return tangent(storage)
        return value(storage)

    def nbytes(self, storages: Iterable[str]) -> int:
        """Return the bytes of storages."""
        return sum(self.problem.values[self.index[s]].nbytes for s in storages)

    # -- results of the operation that runs now --------------------------------------------

    def wanted(self, operation: Operation) -> list[str]:
        """Return the storages an operation makes that somebody reads before they are freed."""
        made = []
        for storage in self.graph.writes(operation):
            v = self.index[storage]
            life = self.lifetime(v)
            resident_before = life.begin < self.moment
            used = life.end > self.moment and v not in self.freed_next()
            leaves = self.problem.values[v].held is not Held.FREE
            if (used or leaves) and not resident_before:
                made.append(storage)
        return made

    def freed_next(self) -> set[int]:
        """Return the values that are freed before any other operation runs."""
        following = itertools.islice(self._steps, self.moment + 1, None)
        frees = itertools.takewhile(lambda step: isinstance(step, Free), following)
        return {step.value for step in frees if isinstance(step, Free)}

    def retained_bytes(self, operation: Operation) -> int:
        """Return the bytes that an operation makes and that stay until backward."""
        backward = self.schedule.block_count
        made = self.graph.writes(operation)
        return self.nbytes(s for s in made if self.lifetime(self.index[s]).end_segment >= backward)

    def leaving_block(self, storage: str) -> int:
        """Return the block in which an output leaves, or an output's gradient comes in."""
        return self.lifetimes.leaving.at(self.index[storage])

    # -- whole segments ----------------------------------------------------------------------

    def outputs_read_in(self, segment: int) -> set[int]:
        """Return the values held until the step ends that a segment reads."""
        steps = self.schedule.segments[segment].steps
        runs = (step.operation for step in steps if isinstance(step, Run))
        read = {v for p in runs for v in self.problem.operations[p].inputs}
        return {v for v in read if self.problem.values[v].held is Held.STEP}

    def outputs_read_in_backward(self) -> set[int]:
        """Return the values held until the step ends that backward reads."""
        n = self.schedule.block_count
        return {v for segment in range(n, 2 * n) for v in self.outputs_read_in(segment)}

    def leaves_in(self, gradient: str, segment: int) -> bool:
        """Tell whether a gradient is made in this segment (for the step's first block: given).

        Or its parameter read last.
        """
        if gradient not in self.index:
            return segment == 2 * self.schedule.block_count - 1
        value = self.index[gradient]
        first = self.lifetimes.by_value[value][0].begin_segment
        return max(first, self.schedule.block_count, self.lifetimes.waits.get(value, 0)) == segment
