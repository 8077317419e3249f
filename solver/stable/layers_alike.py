"""Plan layers alike where that costs next to nothing.

Where schedules differ by less than costs are measured to, a search may come out with four kinds of
layers, each a class to read and to review, for a fifth of a percent of the step. So layers made of
the same take their re-runs, and the order of their backward, from one of them, or the first ones
from one and the others from another, the very first perhaps as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise, permutations, product
from math import inf
from typing import NamedTuple

from remat_gen.ir.paths import pattern_of
from remat_gen.solver.contest.contest import Contest, Entry
from remat_gen.solver.contest.repairs import Repairs
from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.law.liveness import prune
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import IllegalScheduleError
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.law.sums import added
from remat_gen.solver.stable.committed_schedule import Committed
from remat_gen.solver.stable.layer_kinds import Kind
from remat_gen.solver.stable.layer_transfer import Source, Transfer

TOLERANCE = {Effort.QUICK: 2.5e-3, Effort.NORMAL: 1e-2, Effort.THOROUGH: 0.0}
"""By what part of a step's time layers planned alike may be slower than the best found."""
TEMPLATES = 3  # kinds of layers that others may be planned like
CUTS = 6  # places between the layers of one kind and those of another, evenly spread
ROOM = (1.0, 0.99, 0.96)  # shares of the budget that layers alike are made to fit
SLACK = 2.0  # tolerances by which these may be slower: planned alike they may be quicker
_FEWEST = 3  # layers; a pair of them is no row


@dataclass(frozen=True)
class LayersAlike:
    """Schedules of a subject whose layers are more alike than those of a contest's best.

    `judged` has peak and time of the programs replayed for it, None where one cannot run.
    """

    subject: Subject
    effort: Effort
    judged: dict[Program, tuple[int, float] | None] = field(default_factory=dict)

    def kept(self, contest: Contest) -> Entry | None:
        """Return what is kept instead of the contest's best, if anything is.

        Of what fits and is within a tolerance of the best that has the fewest kinds of layers, then
        the fewest changes from one to another, then the least time. If the best's own layers do not
        do, all of a row are made like one of them and fitted. What is quicker is offered.
        """
        if contest.best is None or self.subject.chain is None or not TOLERANCE[self.effort]:
            return None
        best, found = contest.best, None
        fewest = self._kinds(best.program)
        for program in chain([best.program], self._made_to_fit(contest)):
            limit_us = contest.best.replay.time_us * (1 + TOLERANCE[self.effort])
            if contest.best is not best and (found is None or found.replay.time_us > limit_us):
                best, found = contest.best, None  # found on the way
                fewest = self._kinds(best.program)
            entry = self._alike(best.strategy, program, contest.budget_bytes, limit_us, fewest)
            kinds = fewest if entry is None else self._kinds(entry.program)
            if entry is not None and kinds < fewest:
                fewest, found = kinds, entry
            if not fewest.changes:
                break
        return found

    def _made_to_fit(self, contest: Contest) -> Iterator[Program]:
        """Offer and yield what rows of one kind become where re-runs are added until they fit."""
        repairs = Repairs(self.subject)
        for share in ROOM:
            budget_units = int(contest.budget_bytes * share) // self.subject.unit
            assert contest.best is not None
            for program in self._of_one_kind(contest.best.program):
                best = contest.best
                limit_us = best.replay.time_us * (1 + SLACK * TOLERANCE[self.effort])
                fitted = repairs.fitted(program, budget_units, limit_us)
                if fitted is not None:
                    contest.offer(best.strategy, fitted)
                    yield fitted

    def _of_one_kind(self, program: Program) -> list[Program]:
        """Return programs in which a row's layers are all alike, whether they fit or not."""
        rows = _rows(self.subject, program)
        one = (1, 0)
        made = (self._made(row, way) for row in rows for way in row.ways() if row.kinds(way) == one)
        return [program for program in dict.fromkeys(made) if self._judged(program) is not None]

    def _kinds(self, program: Program) -> _Kinds:
        """Return how many kinds of layers all rows have, and how often one follows another."""
        rows = _rows(self.subject, program)
        kinds = [row.kinds(row.transfer.matched) for row in rows]
        return _Kinds(*map(sum, zip(*kinds, strict=True))) if kinds else _Kinds(0, 0)

    def _alike(
        self, strategy: str, program: Program, budget_bytes: int, limit_us: float, most: _Kinds
    ) -> Entry | None:
        """Return a program with fewer kinds of layers, one row after the other, if one fits.

        Ways are left out that make more kinds than all rows have, even if others had one.
        """
        found = None
        for i in range(len(rows := _rows(self.subject, program))):
            row = _rows(self.subject, program)[i]
            others = len(rows) - 1
            ways = [way for way in row.ways() if row.kinds(way).kinds + others <= most.kinds]
            ways.sort(key=row.kinds)  # the sort keeps the order of equals
            for _, equal in groupby(ways, key=row.kinds):
                programs = (self._made(row, way) for way in equal)
                quickest = self._quickest(strategy, programs, budget_bytes, limit_us)
                if quickest is not None:
                    found, program = quickest, quickest.program
                    break
        return found or self._quickest(strategy, [program], budget_bytes, limit_us)

    def _quickest(
        self, strategy: str, programs: Iterable[Program], budget_bytes: int, limit_us: float
    ) -> Entry | None:
        """Return the quickest program that fits; none is replayed whose runs alone take longer."""
        found: Program | None = None
        for program in sorted(dict.fromkeys(programs), key=self._runs_us):
            if self._runs_us(program) > limit_us:
                break
            peak_bytes, time_us = self._judged(program) or (inf, inf)
            quicker = time_us < limit_us or (found is None and time_us == limit_us)
            if peak_bytes <= budget_bytes and quicker:
                found, limit_us = program, time_us
        return None if found is None else Entry(strategy, found, *self.subject.judge(found))

    def _made(self, row: _Row, way: Source) -> Program:
        return prune(self.subject.whole, row.transfer.program(row.transfer.runs(way)))

    def _judged(self, program: Program) -> tuple[int, float] | None:
        """Return a program's peak and time; None where its re-runs cannot stand there."""
        if program not in self.judged:
            self.judged[program] = None
            with suppress(IllegalScheduleError):
                _, replayed = self.subject.judge(program)
                self.judged[program] = replayed.peak_bytes, replayed.time_us
        return self.judged[program]

    def _runs_us(self, program: Program) -> float:
        """Return the time of a program's runs, to which the replay adds pins and waits."""
        operations = self.subject.problem.operations
        return added(operations[p].time_us for p in program.flat())


def _rows(subject: Subject, program: Program) -> list[_Row]:
    """Return the rows of layers that are made of the same, the longest first."""
    cuts = [start for start, _ in subject.block_ranges()]
    transfer = Transfer(subject.whole, _written(subject, program), cuts)
    often = Counter(transfer.new_kinds.values()).most_common()
    return [_Row.of(transfer, kind) for kind, count in often if count >= _FEWEST]


class _Kinds(NamedTuple):
    """How many kinds of layers there are, and how often one of another kind follows in a list."""

    kinds: int
    changes: int


@dataclass(frozen=True)
class _Row:
    """The layers of a kind, in order; `like` has the first of those planned alike."""

    transfer: Transfer
    layers: Sequence[str]
    like: Mapping[str, str]

    @classmethod
    def of(cls, transfer: Transfer, kind: Kind) -> _Row:
        """Return the layers that are made of the same."""
        layers = [layer for layer, other in transfer.new_kinds.items() if other == kind]
        firsts: dict[object, str] = {}
        courses = [transfer.course(layer) for layer in layers]
        common = set.intersection(*({name for name, _ in course} for course in courses))
        like = {}
        for layer, course in zip(layers, courses, strict=True):
            # at the ends of a row a gradient less is added up: that alone makes no kind
            said = tuple(run for run in course if run[0] in common or run[1])
            like[layer] = firsts.setdefault(said, layer)
        return cls(transfer, layers, like)

    def kinds(self, way: Source) -> _Kinds:
        """Return what kinds of layers a way has, and where they change within a list."""
        kinds = [self.like[way.get(layer, layer)] for layer in self.layers]
        lists = map(pattern_of, self.layers)
        follow = pairwise(zip(lists, kinds, strict=True))
        changes = sum(a[0] == b[0] and a[1] != b[1] for a, b in follow)
        return _Kinds(len(set(kinds)), changes)

    def ways(self) -> Iterator[Source]:
        """Yield from where each layer takes its re-runs, where that makes fewer kinds."""
        often = Counter(self.like.values())
        templates = [layer for layer, _ in often.most_common(TEMPLATES)]
        for own in (0, 1):  # layers at the beginning that stay as they are
            for template in templates:
                yield from self._fewer([*self.layers[:own], *[template] * len(self.layers[own:])])
            step = max(1, -(-(len(self.layers) - own - 1) // CUTS))
            for first, second in permutations(templates, 2):
                for cut in range(own + 1, len(self.layers), step):
                    wanted = [first] * (cut - own) + [second] * (len(self.layers) - cut)
                    yield from self._fewer([*self.layers[:own], *wanted])
        for first, second in permutations(templates, 2):
            for head, tail in product((0, 1), repeat=2):
                yield from self._fewer(self._in_order(first, second, head, tail))

    def _in_order(self, first: str, second: str, head: int, tail: int) -> list[str]:
        """Return as what each layer is, the first ones of each list alike, as many as there are.

        All others are alike but for the list's own `head` and `tail`, the layers at its ends.
        """
        wanted: list[str] = []
        for _, together in groupby(self.layers, pattern_of):
            layers = list(together)
            inside = layers[head : len(layers) - tail]
            count = [self.like[layer] for layer in inside].count(first)
            wanted += layers[:head] + [first] * count + [second] * (len(inside) - count)
            wanted += layers[head + len(inside) :]
        return wanted

    def _fewer(self, wanted: Sequence[str]) -> Iterator[Source]:
        """Yield the way in which layers are as those `wanted`."""
        way = dict(self.transfer.matched)
        for layer, template in zip(self.layers, wanted, strict=True):
            if self.like[layer] != self.like[template]:
                way[layer] = template
        if self.kinds(way) < self.kinds(self.transfer.matched):
            yield way


def _written(subject: Subject, program: Program) -> Committed:
    """Return a program by the names of its operations."""
    names = [operation.name for operation in subject.whole.operations]
    segments = tuple(tuple(names[p] for p in segment) for segment in program.segments)
    return Committed(segments[: program.block_count], segments[program.block_count :])
