"""An option of a block: what is retained for its backward, and what is re-run before what."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from remat_gen.solver.blocks.local_block import LocalBlock, LocalOperation, Role
from remat_gen.solver.law.sums import added

RerunStages = tuple[tuple[int, ...], ...]

MORTAL = (Role.OWN, Role.EXIT, Role.ENTERING, Role.GRADIENT)
ONCE = (Role.PINNED, Role.OUTPUT)  # there since the first run, whenever they are made again


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run a block, by its re-runs. Bytes exclude what enters it from earlier blocks.

    `stages[t]` are the forward operations re-run before backward operation t; `retained` what it
    reads before it is made again, exits included; `saved_bytes` leaves out exits. `again` makes
    exits and retained values when the block's forward is run again for later blocks.
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
    first = forward_inside(block, range(len(block.forward)), keep, first=True)
    backward = backward_inside(block, stages, retained)
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
    block: LocalBlock, runs: Sequence[int], keep: Set[int], *, first: bool
) -> list[int]:
    """Return the bytes inside each run while keeping `keep`; in the first run all that stays."""
    return _inside(block, [block.forward[p] for p in runs], 0, keep, first=first)


def backward_steps(stages: RerunStages) -> list[tuple[int, int]]:
    """Return the steps of backward in order: (t, p) a re-run before t, (t, -1) t itself."""
    return [step for t, stage in enumerate(stages) for step in (*((t, p) for p in stage), (t, -1))]


def backward_inside(block: LocalBlock, stages: RerunStages, retained: tuple[int, ...]) -> list[int]:
    """Return the bytes inside every step of the block's backward."""
    steps = backward_steps(stages)
    operations = [block.backward[t] if p < 0 else block.forward[p] for t, p in steps]
    there = sum(block.values[v].nbytes for v in retained)
    there += sum(block.bytes_of(role) for role in (Role.PINNED, Role.ENTERING, Role.THROUGH))
    return _inside(block, operations, there)


def _inside(
    block: LocalBlock,
    operations: Sequence[LocalOperation],
    resident: int,
    keep: Set[int] = frozenset(),
    *,
    first: bool = False,
) -> list[int]:
    """Return the bytes inside each of some operations, where values go after their last use."""
    needed, dies = set(keep), []
    for operation in reversed(operations):
        touched = dict.fromkeys(operation.inputs + operation.outputs)
        dies.append([v for v in touched if v not in needed and block.values[v].role in MORTAL])
        needed.difference_update(set(operation.outputs) - keep)
        needed.update(operation.inputs)
    inside = []
    for operation, dead in zip(operations, reversed(dies), strict=True):
        inside.append(resident + operation.extra_bytes)
        inside[-1] += sum(block.values[v].nbytes for v in operation.outputs)
        made = (block.values[v] for v in operation.outputs)
        resident += sum(v.nbytes for v in made if first or v.role not in ONCE)
        resident -= sum(block.values[v].nbytes for v in dead)
    return inside
