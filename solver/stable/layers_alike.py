"""Plan layers alike where that costs next to nothing.

A search decides for every layer by itself. Where schedules differ by less than costs are measured
to, it may come out with four kinds of layers, each a class to read and to review, for a fifth of a
percent of the step. So layers that are made of the same take their re-runs from one of them, or the
first ones from one and the others from another, the very first perhaps as it was: of the schedules
with the fewest kinds that fit the budget and are within a tolerance of the best, the quickest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, permutations

from remat_gen.solver.contest.contest import Contest, Entry
from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.law.liveness import prune
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import IllegalScheduleError
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.stable.committed_schedule import Committed
from remat_gen.solver.stable.layer_transfer import Source, Transfer

TOLERANCE = {Effort.QUICK: 2.5e-3, Effort.NORMAL: 1e-2, Effort.THOROUGH: 0.0}
"""By what part of a step's time layers planned alike may be slower than the best found."""
TEMPLATES = 3  # kinds of layers that others may be planned like
CUTS = 6  # places between the layers of one kind and those of another
_FEWEST = 3  # layers; a pair of them is no row


@dataclass(frozen=True)
class LayersAlike:
    """Schedules of a subject whose layers are more alike than those of a contest's best."""

    subject: Subject
    effort: Effort

    def kept(self, contest: Contest) -> Entry | None:
        """Return what is kept instead of the contest's best, if anything is."""
        best = contest.best
        if best is None or self.subject.chain is None or not TOLERANCE[self.effort]:
            return None
        row = _Row.of(self.subject, best.program)
        if row is None:
            return None
        limit_us = best.replay.time_us * (1 + TOLERANCE[self.effort])
        ways = sorted(row.ways(), key=row.kinds)  # the sort keeps the order of equals
        for _, equal in groupby(ways, key=row.kinds):
            entries = [self._judged(best.strategy, row, way) for way in equal]
            fitting = [
                entry
                for entry in entries
                if entry is not None
                and entry.replay.peak_bytes <= contest.budget_bytes
                and entry.replay.time_us <= limit_us
            ]
            if fitting:
                return min(fitting, key=lambda entry: entry.replay.time_us)
        return None

    def _judged(self, strategy: str, row: _Row, way: Source) -> Entry | None:
        """Return the entry of a way; None where re-runs cannot stand where the other layer's do."""
        program = prune(self.subject.whole, row.transfer.program(row.transfer.runs(way)))
        try:
            return Entry(strategy, program, *self.subject.judge(program))
        except IllegalScheduleError:
            return None


@dataclass(frozen=True)
class _Row:
    """The layers of the commonest kind, in order; `like` has the first of those planned alike."""

    transfer: Transfer
    layers: Sequence[str]
    like: Mapping[str, str]

    @classmethod
    def of(cls, subject: Subject, program: Program) -> _Row | None:
        """Return the row of a schedule, if it has one whose layers are planned differently."""
        cuts = [start for start, _ in subject.block_ranges()]
        transfer = Transfer(subject.whole, _written(subject, program), cuts)
        often = Counter(transfer.new_kinds.values())
        if not often:
            return None
        kind, count = often.most_common(1)[0]
        layers = [layer for layer, other in transfer.new_kinds.items() if other == kind]
        firsts: dict[object, str] = {}
        like = {x: firsts.setdefault(transfer.reruns_in(x), x) for x in layers}
        return cls(transfer, layers, like) if count >= _FEWEST and len(firsts) > 1 else None

    def kinds(self, way: Source) -> int:
        """Return how many kinds of layers of the row a way has."""
        return len({self.like[way[layer]] for layer in self.layers})

    def ways(self) -> Iterator[Source]:
        """Yield from where each layer takes its re-runs, where that makes fewer kinds."""
        often = Counter(self.like.values())
        templates = [layer for layer, _ in often.most_common(TEMPLATES)]
        for own in (0, 1):  # layers at the beginning that stay as they are
            for template in templates:
                yield from self._fewer(own, len(self.layers), template, template)
            for first, second in permutations(templates, 2):
                for cut in _cuts(own + 1, len(self.layers)):
                    yield from self._fewer(own, cut, first, second)

    def _fewer(self, own: int, cut: int, first: str, second: str) -> Iterator[Source]:
        """Yield the way in which layers up to a cut are as one, all behind it as another."""
        wanted = [first] * cut + [second] * (len(self.layers) - cut)
        way = dict(self.transfer.matched)
        for layer, template in list(zip(self.layers, wanted, strict=True))[own:]:
            if self.like[layer] != template:
                way[layer] = template
        if self.kinds(way) < len(set(self.like.values())):
            yield way


def _cuts(first: int, stop: int) -> list[int]:
    """Return places between layers, evenly spread where there are many."""
    step = max(1, -(-(stop - first) // CUTS))
    return list(range(first, stop, step))


def _written(subject: Subject, program: Program) -> Committed:
    """Return a program by the names of its operations."""
    names = [operation.name for operation in subject.whole.operations]
    segments = tuple(tuple(names[p] for p in segment) for segment in program.segments)
    return Committed(segments[: program.block_count], segments[program.block_count :])
