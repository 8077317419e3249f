"""An option of a block: what is retained for its backward, and what is re-run before what.

An option is defined by its re-runs alone (`stages`): a value is retained if backward reads it
before it is made again. All figures follow by walking over the block's operations once.
"""

from __future__ import annotations

from dataclasses import dataclass

from remat_gen.solver.blocks.local_block import LocalBlock, Role
from remat_gen.solver.law.sums import added

RerunStages = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run a block. Bytes exclude what enters the block from earlier forward ones.

    `stages[t]` are the forward operations re-run before backward operation t; `retained` what their
    absence keeps, exits included; `saved_bytes` leaves out exits. `again` makes exits and retained
    values when the block's forward is run again for later blocks.
    """

    stages: RerunStages
    retained: tuple[int, ...]
    saved_bytes: int
    rerun_us: float
    first_peak_bytes: int
    backward_peak_bytes: int
    again: tuple[int, ...]
    again_us: float
    again_peak_bytes: int

    @property
    def peak_bytes(self) -> int:
        """Return the larger peak of the first run and of backward."""
        return max(self.first_peak_bytes, self.backward_peak_bytes)


@dataclass(frozen=True, slots=True)
class BlockChoices:
    """A block's options; `leaves` retain nothing and serve where its forward ran long ago."""

    options: tuple[Option, ...]
    leaves: tuple[Option, ...]


def evaluate(block: LocalBlock, stages: RerunStages) -> Option:
    """Drop re-runs that nobody reads, add those that pins ask for, and measure the rest."""
    stages, retained = _honoured(block, *_walk_back(block, stages))
    exits = block.exits()
    keep, regained = exits | set(retained), block.regained() | set(retained)
    pinned = block.bytes_of(Role.PINNED)
    again = operations_for(block, regained)
    saved = sum(block.values[v].nbytes for v in retained if v not in exits) + pinned
    first = forward_inside(block, tuple(range(len(block.forward))), keep, first=True)
    backward = (inside for inside, _, _ in backward_inside(block, stages, retained))
    return Option(
        stages,
        retained,
        saved,
        added(block.forward[p].time_us for stage in stages for p in stage),
        max(first, default=0),
        max(backward, default=0),
        again,
        added(block.forward[p].time_us for p in again),
        max(forward_inside(block, again, regained, first=False), default=0),
    )


def standalone(block: LocalBlock, option: Option) -> Option:
    """Return the option that retains nothing and first re-runs what `option` retains."""
    if not option.stages:
        return option
    make = operations_for(block, set(option.retained))
    return evaluate(block, ((*make, *option.stages[0]), *option.stages[1:]))


def operations_for(block: LocalBlock, wanted: set[int]) -> tuple[int, ...]:
    """Return the forward operations that make `wanted` from what is always there, in order."""
    missing = {v for v in wanted if block.decided(v)}
    chosen = []
    for p in range(len(block.forward) - 1, -1, -1):
        if not missing.isdisjoint(block.forward[p].outputs):
            chosen.append(p)
            missing.update(v for v in block.forward[p].inputs if block.decided(v))
    return tuple(reversed(chosen))


def _walk_back(block: LocalBlock, stages: RerunStages) -> tuple[RerunStages, tuple[int, ...]]:
    """Prune the re-runs; return them with the values needed when backward begins."""
    needed: set[int] = set()
    pruned = []
    for t in range(len(block.backward) - 1, -1, -1):
        needed.update(v for v in block.backward[t].inputs if block.decided(v))
        stage = []
        for p in reversed(stages[t]):
            if not needed.isdisjoint(block.forward[p].outputs):
                stage.append(p)
                needed.difference_update(block.forward[p].outputs)
                needed.update(v for v in block.forward[p].inputs if block.decided(v))
        pruned.append(tuple(reversed(stage)))
    return tuple(reversed(pruned)), tuple(sorted(needed))


def _honoured(
    block: LocalBlock, stages: RerunStages, retained: tuple[int, ...]
) -> tuple[RerunStages, tuple[int, ...]]:
    """Run what makes a retained value that must be recomputed again, before its first reader."""
    while gone := [v for v in retained if block.values[v].recompute]:
        p = max(block.producers()[v] for v in gone)
        t, place = _first_reader(block, stages, set(block.forward[p].outputs) & set(gone))
        stage = (*stages[t][:place], p, *stages[t][place:])
        stages, retained = _walk_back(block, (*stages[:t], stage, *stages[t + 1 :]))
    return stages, retained


def _first_reader(block: LocalBlock, stages: RerunStages, values: set[int]) -> tuple[int, int]:
    """Return the stage that reads one of some values first, and the place in its re-runs."""
    for t, stage in enumerate(stages):
        for place, p in enumerate(stage):
            if not values.isdisjoint(block.forward[p].inputs):
                return t, place
        if not values.isdisjoint(block.backward[t].inputs):
            return t, len(stage)
    raise ValueError("a retained value that nobody reads")


def forward_inside(
    block: LocalBlock, runs: tuple[int, ...], keep: set[int], *, first: bool
) -> list[int]:
    """Return the bytes inside each run while keeping `keep`; in the first run all that stays."""
    last: dict[int, int] = {}
    for position, p in enumerate(runs):
        last.update(dict.fromkeys(block.forward[p].outputs, position))
        last.update(dict.fromkeys(block.forward[p].inputs, position))
    resident, inside = 0, []
    for position, p in enumerate(runs):
        operation = block.forward[p]
        made = sum(block.values[v].nbytes for v in operation.outputs)
        inside.append(resident + made + operation.extra_bytes)
        lasting = [v for v in operation.outputs if first or block.decided(v)]
        resident += sum(block.values[v].nbytes for v in lasting)
        for v in dict.fromkeys(operation.inputs + operation.outputs):
            dead = last[v] == position and block.decided(v) and v not in keep
            resident -= block.values[v].nbytes if dead else 0
    return inside


def gradient_line(block: LocalBlock) -> list[int]:
    """Return the bytes of gradients and pinned values before each backward operation."""
    stages: RerunStages = ((),) * len(block.backward)
    dies = _deaths(block, backward_steps(block, stages))
    resident = sum(block.bytes_of(role) for role in (Role.PINNED, Role.ENTERING, Role.THROUGH))
    line = []
    for operation, dead in zip(block.backward, dies, strict=True):
        line.append(resident)
        resident += sum(block.values[v].nbytes for v in operation.outputs)
        resident -= sum(block.values[v].nbytes for v in dead if not block.decided(v))
    return line


def backward_steps(block: LocalBlock, stages: RerunStages) -> list[tuple[int, int]]:
    """Return the steps of backward in order: (t, p) a re-run before t, (t, -1) t itself."""
    return [step for t, stage in enumerate(stages) for step in (*((t, p) for p in stage), (t, -1))]


def backward_inside(
    block: LocalBlock, stages: RerunStages, retained: tuple[int, ...]
) -> list[tuple[int, int, int]]:
    """Return (bytes inside, t, p) of every step of the block's backward."""
    steps = backward_steps(block, stages)
    operations = [block.backward[t] if p < 0 else block.forward[p] for t, p in steps]
    dies = _deaths(block, steps)
    resident = sum(block.values[v].nbytes for v in retained)
    for role in (Role.PINNED, Role.ENTERING, Role.THROUGH):
        resident += block.bytes_of(role)
    inside = []
    for (t, p), operation, dead in zip(steps, operations, dies, strict=True):
        made = sum(block.values[v].nbytes for v in operation.outputs)
        inside.append((resident + made + operation.extra_bytes, t, p))
        lasting = operation.outputs if p < 0 else filter(block.decided, operation.outputs)
        resident += sum(block.values[v].nbytes for v in lasting)
        resident -= sum(block.values[v].nbytes for v in dead)
    return inside


def _deaths(block: LocalBlock, steps: list[tuple[int, int]]) -> list[list[int]]:
    """Return for each step the values that are dead after it."""
    mortal = (Role.OWN, Role.EXIT, Role.ENTERING, Role.GRADIENT)
    needed: set[int] = set()
    dies = []
    for t, p in reversed(steps):
        operation = block.backward[t] if p < 0 else block.forward[p]
        touched = dict.fromkeys(operation.inputs + operation.outputs)
        dies.append([v for v in touched if v not in needed and block.values[v].role in mortal])
        needed.difference_update(operation.outputs)
        needed.update(operation.inputs)
    return dies[::-1]
