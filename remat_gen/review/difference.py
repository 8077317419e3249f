"""What changed from one plan to another: which values, which operations, what it costs and gains.

Plans alone are compared: neither torch nor the models are needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from remat_gen.ir.plan import Block, Plan
from remat_gen.ir.steps import FREE, RUN, SEND, read_step, runs_in


@dataclass(frozen=True, slots=True)
class BlockDifference:
    """What changed in some blocks; the names are those inside of a block.

    `retained` and `dropped` have bytes by value; `rerun` and `spared` are operations; `sent` and
    `unsent` are values that go to the host, and go there no more.
    """

    blocks: tuple[str, ...]
    retained: Mapping[str, int]
    dropped: Mapping[str, int]
    rerun: tuple[str, ...]
    spared: tuple[str, ...]
    sent: tuple[str, ...] = ()
    unsent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """All that changed; `earlier` and `later` are values that are freed at another operation.

    `rungs` has the difference of each rung that both plans have, `new_rungs` and `gone_rungs` are
    those that one has.
    """

    old: Plan
    new: Plan
    blocks: tuple[BlockDifference, ...]
    earlier: tuple[str, ...]
    later: tuple[str, ...]
    added: tuple[str, ...]
    gone: tuple[str, ...]
    rungs: Mapping[str, Difference] = field(default_factory=dict)
    new_rungs: tuple[str, ...] = ()
    gone_rungs: tuple[str, ...] = ()

    @property
    def schedule_is_same(self) -> bool:
        """Tell whether the schedules for all steps do the same."""
        return not (self.blocks or self.earlier or self.later or self.added or self.gone)

    @property
    def empty(self) -> bool:
        """Tell whether all schedules of the two do the same."""
        rungs = all(found.empty for found in self.rungs.values())
        return self.schedule_is_same and rungs and not (self.new_rungs or self.gone_rungs)


def difference(old: Plan, new: Plan) -> Difference:
    """Compare two plans of the same model, or of one that has changed a little."""
    operations = _first_runs(old), _first_runs(new)
    chosen = _Choices.of(old), _Choices.of(new)
    before, after = _rungs(old), _rungs(new)
    return Difference(
        old,
        new,
        tuple(_blocks(*chosen)),
        *_freed_elsewhere(old, new, *chosen),
        added=tuple(name for name in operations[1] if name not in operations[0]),
        gone=tuple(name for name in operations[0] if name not in operations[1]),
        rungs={
            name: difference(before[name], plan) for name, plan in after.items() if name in before
        },
        new_rungs=tuple(name for name in after if name not in before),
        gone_rungs=tuple(name for name in before if name not in after),
    )


def _rungs(plan: Plan) -> dict[str, Plan]:
    """Return what is planned for each rung, by the rung's condition."""
    return {str(rung.rung): plan.of_rung(rung) for rung in plan.rungs}


def _first_runs(plan: Plan) -> dict[str, int]:
    """Return the operations in the order in which they first run, with their position."""
    return {name: i for i, name in enumerate(dict.fromkeys(runs_in(plan.steps())))}


@dataclass(frozen=True, slots=True)
class _Choices:
    """What a plan retains, with its bytes, runs again, and sends to the host, with the block."""

    blocks: Sequence[Block]
    retained: Mapping[str, int]
    reruns: Counter[str]
    sent: Mapping[str, str]

    @classmethod
    def of(cls, plan: Plan) -> _Choices:
        return cls(
            plan.blocks,
            {name: n for block in plan.blocks for name, n in block.retained.items()},
            Counter(name for block in plan.blocks for name in block.rematerialised),
            {
                name: plan.blocks[segment.block].name
                for segment in plan.schedule
                for verb, names in map(read_step, segment.steps)
                if verb == SEND
                for name in names
            },
        )

    def beyond(
        self, other: _Choices, block: str
    ) -> tuple[dict[str, int], tuple[str, ...], tuple[str, ...]]:
        """Return what a block retains, runs again and sends that the other plan does not."""
        own = [b for b in self.blocks if b.name == block]
        kept = {n: size for b in own for n, size in b.retained.items() if n not in other.retained}
        largest = sorted(kept, key=lambda name: (-kept[name], name))
        more = self.reruns - other.reruns
        again = dict.fromkeys(n for b in own for n in b.rematerialised if more[n])
        sent = [n for n, by in self.sent.items() if by == block and n not in other.sent]
        inside = f"{block}."
        return (
            {name.removeprefix(inside): kept[name] for name in largest},
            tuple(name.removeprefix(inside) for name in again),
            tuple(name.removeprefix(inside) for name in sent),
        )


def _blocks(before: _Choices, after: _Choices) -> Iterator[BlockDifference]:
    """Yield the difference of blocks; a value that left is told where it was.

    Neighbours with the same difference are one.
    """
    names = dict.fromkeys(block.name for block in (*after.blocks, *before.blocks))
    changes = ((name, after.beyond(before, name), before.beyond(after, name)) for name in names)
    changed = (change for change in changes if any((*change[1], *change[2])))
    for (new, gone), alike in groupby(changed, key=lambda change: change[1:]):
        pairs = [pair for pairs in zip(new, gone, strict=True) for pair in pairs]
        yield BlockDifference(tuple(name for name, *_ in alike), *pairs)


def _freed_elsewhere(
    old: Plan, new: Plan, before: _Choices, after: _Choices
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the values freed earlier and later; those newly retained or dropped are told above."""
    order = _first_runs(new)
    was, now = _deaths(old, order), _deaths(new, order)
    told = (before.retained.keys() ^ after.retained.keys()) | (
        before.sent.keys() ^ after.sent.keys()
    )
    told |= {*(before.reruns - after.reruns), *(after.reruns - before.reruns)}
    both = [name for name in now if name in was and name not in told]
    earlier = tuple(name for name in both if now[name] < was[name])
    return earlier, tuple(name for name in both if now[name] > was[name])


def _deaths(plan: Plan, order: Mapping[str, int]) -> dict[str, int]:
    """Return after which operation of `order` each value is freed for the last time."""
    deaths: dict[str, int] = {}
    ran: set[str] = set()
    now = -1
    for verb, names in map(read_step, plan.steps()):
        if verb == FREE:
            deaths.update(dict.fromkeys(names, now))
        elif verb == RUN and ran.isdisjoint(names):
            ran.update(names)
            now = max([now, *(order.get(name, -1) for name in names)])
    return deaths
