"""The scheduling problem: plain numbers, no torch.

Operations stand in traced order, forward before backward. Values are storages, by index. Inputs,
parameters and buffers are not part of it: their bytes are there before the step and stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from math import gcd

from remat_gen.ir.paths import OUTERMOST, Layers
from remat_gen.solver.law.sums import added


class Held(Enum):
    """Who else holds a value, so that a schedule cannot free it when it likes."""

    FREE = "free"  # nobody: it may be freed at any time
    SEGMENT = "segment"  # until a block's backward returns: parameter gradients, incoming ones
    STEP = "step"  # until the step ends: outputs


@dataclass(frozen=True, slots=True)
class Value:
    """A storage of `nbytes` (already rounded as the device's allocator rounds).

    `recompute`: it must not be there when backward begins (see `pins`). `travels`: a schedule may
    send it to the host and fetch it again. `leaves`: it is a parameter's gradient that nothing
    reads, and may be gone before the segment that holds it ends (see `hand_overs`).
    """

    name: str
    nbytes: int
    held: Held = Held.FREE
    recompute: bool = False
    travels: bool = False
    leaves: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """`inputs` and `outputs` are indices of values; the peak inside counts `workspace_bytes`.

    `signature` is equal for operations that do the same work on the same shapes: identical blocks
    are recognised by it. `rerunnable` is False where a second run would be wrong. `layer` names
    the repeated layer of the model a forward operation belongs to, "" outside of all. `ordered`
    backward operations (random ones, mutations) run in the order in which they stand.

    `node` numbers the node of eager's autograd that a backward operation is a part of; that node
    holds `saved`, which no part of it need read. `fills` are the zeros that eager writes into.

    One that runs `outside` of blocks is eager's: gradients of the block before it have left then.

    `keeps` are the gradients of parameters that it reads: once one has left, a hook may change its
    parameter (an optimizer that steps in backward).

    The result is written `over` an input, of as many bytes, where one is named: a backward
    operation's that no other operation reads and nobody holds. Both are never there at once.
    """

    name: str
    time_us: float
    workspace_bytes: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    backward: bool
    rerunnable: bool = True
    signature: str = ""
    layer: str = ""
    ordered: bool = False
    over: int | None = None
    node: int | None = None
    saved: tuple[int, ...] = ()
    fills: int | None = None
    outside: bool = False
    keeps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class HostLink:
    """What lies between device and host: a copy engine for each direction, both as quick.

    A copy takes `start_us` and its bytes at `bytes_per_us`.
    """

    bytes_per_us: float
    start_us: float = 0.0

    def copy_us(self, nbytes: int) -> float:
        """Return how long an engine is busy with a value."""
        return self.start_us + nbytes / self.bytes_per_us


@dataclass(frozen=True)
class Problem:
    """Operations over values; `given` values (incoming gradients) appear when backward begins.

    `layers` tells which layer an operation belongs to, by its name. Without a `link` to the host
    no value travels.
    """

    operations: tuple[Operation, ...]
    values: tuple[Value, ...]
    given: tuple[int, ...] = ()
    layers: Layers = OUTERMOST
    link: HostLink | None = None

    @cached_property
    def forward_count(self) -> int:
        """Return the number of forward operations; the first backward one stands at this index."""
        return sum(not operation.backward for operation in self.operations)

    @cached_property
    def once_us(self) -> float:
        """Return the time of running each operation once, in microseconds."""
        return added(operation.time_us for operation in self.operations)

    def producers(self) -> dict[int, int]:
        """Return for each value the operation that makes it; given values are absent."""
        return {v: p for p, operation in enumerate(self.operations) for v in operation.outputs}

    def extra_bytes(self, operation: Operation) -> int:
        """Return what an operation needs beside what is there before it and what it makes.

        That is its workspace, less the input that its result is written over.
        """
        over = 0 if operation.over is None else self.values[operation.over].nbytes
        return operation.workspace_bytes - over

    def room_bytes(self, p: int) -> int:
        """Return what an operation needs where nothing else is there."""
        operation = self.operations[p]
        around = {*operation.inputs, *operation.outputs}
        return self.extra_bytes(operation) + sum(self.values[v].nbytes for v in around)

    def floor_bytes(self) -> int:
        """Return the most that one operation alone needs: no schedule has a lower peak."""
        return max(map(self.room_bytes, range(len(self.operations))), default=0)

    def in_new_memory(self) -> Problem:
        """Return the problem of a step that writes nothing over, as eager's does not."""
        operations = tuple(replace(operation, over=None) for operation in self.operations)
        return replace(self, operations=operations)


def in_units(problem: Problem) -> tuple[Problem, int]:
    """Return the problem with all bytes divided by their greatest common divisor, and that.

    So what is decided does not depend on the scale of bytes.
    """
    sizes = [value.nbytes for value in problem.values]
    unit = gcd(*sizes, *(operation.workspace_bytes for operation in problem.operations)) or 1
    values = tuple(replace(value, nbytes=value.nbytes // unit) for value in problem.values)
    operations = tuple(
        replace(operation, workspace_bytes=operation.workspace_bytes // unit)
        for operation in problem.operations
    )
    link = problem.link and replace(problem.link, bytes_per_us=problem.link.bytes_per_us / unit)
    return replace(problem, values=values, operations=operations, link=link), unit
