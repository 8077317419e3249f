"""Which of the kept values play the same role: what one class keeps another reads by one name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from remat_gen.codegen.expressions.marks import Mark, find
from remat_gen.codegen.statements.statements import Body


@dataclass(slots=True)
class Roles:
    """Sets of storages, of which no block keeps two: a union-find by name.

    `kept` has by role the storage that each block keeps of it.
    """

    parent: dict[str, str] = field(default_factory=dict)
    kept: dict[str, dict[int, str]] = field(default_factory=dict)

    def of(self, storage: str) -> str:
        """Return the role of a storage: the name of one that plays it."""
        while self.parent.setdefault(storage, storage) != storage:
            storage = self.parent[storage]
        return storage

    def add(self, marks: Iterable[Mark]) -> None:
        """Take in kept values; each has a role of its own, until it is united with others."""
        for mark in marks:
            self.kept.setdefault(self.of(mark.name), {})[mark.owner] = mark.name

    def unite(self, *bodies: Body) -> bool:
        """Give the values of bodies that read the same the same roles.

        False, and nothing is changed, where a block would keep two values of one role: such bodies
        are no class, as where two halves change places from one layer to the next.
        """
        trial = Roles(dict(self.parent), {role: dict(kept) for role, kept in self.kept.items()})
        if not all(trial._united(*pair) for pair in _pairs(bodies)):
            return False
        self.parent, self.kept = trial.parent, trial.kept
        return True

    def _united(self, one: Mark, other: Mark) -> bool:
        self.add((one, other))
        first, second = self.of(one.name), self.of(other.name)
        if first == second:
            return one.owner != other.owner or one.name == other.name
        ours, theirs = self.kept[first], self.kept[second]
        if not ours.keys().isdisjoint(theirs):
            return False
        self.parent[second] = first
        self.kept[first] = ours | self.kept.pop(second)
        return True


def kept_marks(body: Body) -> list[Mark]:
    """Return what a body touches of what blocks keep, each once, in order of appearance."""
    return list(dict.fromkeys(mark for row in _rows(body) for mark in row or ()))


def kept_by_others(body: Body) -> list[Mark]:
    """Return what a body touches of what other blocks keep, each once, in order of appearance."""
    return [mark for mark in kept_marks(body) if mark.owner != body.block]


def _pairs(bodies: Iterable[Body]) -> Iterator[tuple[Mark, Mark]]:
    """Yield what is kept in the same place of those bodies that run it: of the first, another."""
    for rows in zip(*map(_rows, bodies), strict=True):
        first, *others = [row for row in rows if row is not None] or [[]]
        for row in others:
            yield from zip(first, row, strict=True)


def _rows(body: Body) -> Iterator[list[Mark] | None]:
    """Yield what is kept in each line of a body, what is freed after all else; None if not run."""
    for function in (body.forward, body.backward):
        lines = function.statements
        marks: list[Sequence[Mark] | None] = []
        marks += (find(s.text + s.again) if s.runs_in(body.block) else None for s in lines)
        marks += map(find, function.returns.values())
        marks += [[m for m, _ in s.frees] if s.runs_in(body.block) else None for s in lines]
        for row in marks:
            yield None if row is None else [mark for mark in row if mark.kind == "kept"]
