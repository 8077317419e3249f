"""What changed from one plan to another: which values, which operations, what it costs and gains.

Plans alone are compared: neither torch nor the models are needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
    earlier, later = _freed_elsewhere(old, new)
    before, after = _rungs(old), _rungs(new)
    return Difference(
        old,
        new,
        tuple(_together(_blocks(old, new))),
        tuple(earlier),
        tuple(later),
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


# -- retained and run again --------------------------------------------------------------------


def _blocks(old: Plan, new: Plan) -> Iterator[BlockDifference]:
    """Yield the difference block by block; a value that left is told where it was."""
    before, after = _retained(old), _retained(new)
    reruns_before, reruns_after = _reruns(old), _reruns(new)
    sent_before, sent_after = _sent(old), _sent(new)
    names = dict.fromkeys(block.name for plan in (new, old) for block in plan.blocks)
    for name in names:
        mine = {
            b: [block for block in p.blocks if block.name == name] for b, p in ((0, old), (1, new))
        }
        found = BlockDifference(
            (name,),
            _inside(name, _sizes(mine[1], set(before))),
            _inside(name, _sizes(mine[0], set(after))),
            _without(name, _more(mine[1], reruns_after - reruns_before)),
            _without(name, _more(mine[0], reruns_before - reruns_after)),
            _without(name, _only(name, sent_after, sent_before)),
            _without(name, _only(name, sent_before, sent_after)),
        )
        if any(_parts(found)):
            yield found


def _retained(plan: Plan) -> dict[str, int]:
    return {name: n for block in plan.blocks for name, n in block.retained.items()}


def _sent(plan: Plan) -> dict[str, str]:
    """Return the values that go to the host, with the block that sends each."""
    return {
        name: plan.blocks[segment.block].name
        for segment in plan.schedule
        for verb, names in map(read_step, segment.steps)
        if verb == SEND
        for name in names
    }


def _only(block: str, sent: Mapping[str, str], others: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name, by in sent.items() if by == block and name not in others)


def _reruns(plan: Plan) -> Counter[str]:
    return Counter(name for block in plan.blocks for name in block.rematerialised)


def _sizes(blocks: Sequence[Block], others: set[str]) -> dict[str, int]:
    retained = ((name, n) for block in blocks for name, n in block.retained.items())
    return {name: n for name, n in retained if name not in others}


def _more(blocks: Sequence[Block], more: Counter[str]) -> tuple[str, ...]:
    runs = dict.fromkeys(name for block in blocks for name in block.rematerialised)
    return tuple(name for name in runs if more[name])


def _inside(block: str, sizes: Mapping[str, int]) -> dict[str, int]:
    ordered = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    return {name.removeprefix(f"{block}."): n for name, n in ordered}


def _without(block: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.removeprefix(f"{block}.") for name in names)


def _together(found: Iterator[BlockDifference]) -> Iterator[BlockDifference]:
    """Put neighbours with the same difference into one."""
    last: BlockDifference | None = None
    for block in found:
        if last is not None and _parts(last) == _parts(block):
            last = replace(last, blocks=last.blocks + block.blocks)
            continue
        if last is not None:
            yield last
        last = block
    if last is not None:
        yield last


def _parts(found: BlockDifference) -> tuple[object, ...]:
    return (found.retained, found.dropped, found.rerun, found.spared, found.sent, found.unsent)


# -- freed -------------------------------------------------------------------------------------


def _freed_elsewhere(old: Plan, new: Plan) -> tuple[list[str], list[str]]:
    """Return the values freed earlier and later; those newly retained or dropped are told above."""
    order = _first_runs(new)
    before, after = _deaths(old, order), _deaths(new, order)
    told = set(_retained(old)) ^ set(_retained(new)) | (_sent(old).keys() ^ _sent(new).keys())
    told |= {name for name, n in (_reruns(old) - _reruns(new)).items() if n}
    told |= {name for name, n in (_reruns(new) - _reruns(old)).items() if n}
    both = [name for name in after if name in before and name not in told]
    earlier = [name for name in both if after[name] < before[name]]
    return earlier, [name for name in both if after[name] > before[name]]


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
