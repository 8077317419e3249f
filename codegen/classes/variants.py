"""Classes that differ in a few lines are one: what some of its blocks do stands under a condition.

A decoder's layers read one memory: the last layer begins its gradient, the others add to it, and
the first, which is the last in backward, frees it. Whoever has read one of them has read them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import chain, zip_longest
from typing import TypeAlias

from remat_gen.codegen.classes.layer_numbers import without_numbers
from remat_gen.codegen.classes.own_views import DiffersError, with_views, without_views
from remat_gen.codegen.expressions.marks import IN_ALL, Mark, argument, fill, find
from remat_gen.codegen.statements.statements import Body, Function, Statement
from remat_gen.ir.graph import Graph

MOST_PARTNERS = 2  # names of blocks that each block of a class has its own of
_Row: TypeAlias = tuple[Statement, ...]  # one line in each body; what is freed stands one by one


@dataclass(frozen=True, slots=True)
class _Line:
    """A line in each body of a class, nothing at the head of a function; what is freed then."""

    block: int
    code: _Row
    frees: list[_Row]


@dataclass(frozen=True, slots=True)
class _Place:
    """A line of both classes: the same, or what each does there; or of one class alone."""

    ours: _Line | None
    theirs: _Line | None
    same: bool


@dataclass(slots=True)
class Pairs:
    """Which marks of one class's first body mean what those of another's mean."""

    theirs: dict[Mark, Mark] = field(default_factory=dict)
    ours: dict[Mark, Mark] = field(default_factory=dict)

    def add(self, ours: Iterable[Mark], theirs: Iterable[Mark]) -> None:
        """Take marks for the same.

        Raises:
            DiffersError: one of them means another.
        """
        for a, b in zip(ours, theirs, strict=True):
            if self.theirs.setdefault(a, b) != b or self.ours.setdefault(b, a) != a:
                raise DiffersError


def as_one(
    graph: Graph, ours: Sequence[Body], theirs: Sequence[Body], fixed: frozenset[Mark]
) -> tuple[Body, ...]:
    """Return the bodies of two classes with the same statements; marks in `fixed` stay as they are.

    Raises:
        DiffersError: they differ in more than a few lines, or in what no condition can say.
    """
    forward, backward = (
        list(_aligned(graph, _lines(ours, half), _lines(theirs, half)))
        for half in ("forward", "backward")
    )
    pairs = Pairs()
    for place in (*forward, *backward):
        if place.ours and place.theirs and place.same:
            pairs.add(place.ours.code[0].marks(), place.theirs.code[0].marks())
    _pair_results(ours[0], theirs[0], pairs)
    for place in (*forward, *backward):
        if place.ours and place.theirs:
            _pair_freed(place.ours, place.theirs, pairs)
    merge = _Merge(ours, theirs, pairs, fixed)
    rows = list(merge.rows(forward)), list(merge.rows(backward))
    _refuse_many([*rows[0], *rows[1]])
    return tuple(
        replace(
            body,
            forward=replace(body.forward, statements=_together(row[i] for row in rows[0])),
            backward=replace(body.backward, statements=_together(row[i] for row in rows[1])),
        )
        for i, body in enumerate((*ours, *theirs))
    )


def _lines(bodies: Sequence[Body], half: str) -> list[_Line]:
    block = bodies[0].block
    found = [_Line(block, tuple(Statement() for _ in bodies), [])]
    for row in zip(*(_one_by_one(getattr(body, half)) for body in bodies), strict=True):
        if row[0].text:
            found.append(_Line(block, row, []))
        else:
            found[-1].frees.append(row)
    return found


def _one_by_one(function: Function) -> Iterator[Statement]:
    for statement in function.statements:
        frees = [replace(statement, frees=(free,)) for free in statement.frees]
        yield from frees or [statement]


def _aligned(graph: Graph, ours: list[_Line], theirs: list[_Line]) -> Iterator[_Place]:
    """Yield the lines of either class, in order: those that read the same together."""
    old, new = ([_shape(line.code[0], line.block) for line in lines] for lines in (ours, theirs))
    for tag, a, a_end, b, b_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for one, other in zip_longest(ours[a:a_end], theirs[b:b_end]):
            if tag == "equal":
                code, other_code = with_views(one.code, other.code, graph)
                one, other = replace(one, code=code), replace(other, code=other_code)
            yield _Place(one, other, same=tag == "equal")


def _shape(statement: Statement, block: int) -> object:
    text = _canonical(without_numbers(without_views(statement.text)), block)
    return text, statement.does, statement.source, _canonical(statement.again, block)


def _canonical(text: str, block: int) -> str:
    """Write a text's marks by what they are, without names."""

    def canonical(mark: Mark) -> str:
        return str(mark) if mark.kind in IN_ALL else f"<{mark.kind} {mark.owner == block}>"

    return fill(text, canonical)


def _pair_results(ours: Body, theirs: Body, pairs: Pairs) -> None:
    """Pair what is returned, and the arguments that it is the gradients of."""
    for one, other in ((ours.forward, theirs.forward), (ours.backward, theirs.backward)):
        if _results(ours.block, one) != _results(theirs.block, other):
            raise DiffersError
        for a, b in zip(one.returns.values(), other.returns.values(), strict=True):
            pairs.add(find(a), find(b))
        pairs.add(map(argument, one.returns), map(argument, other.returns))
        for turn, other_turn in zip(one.turns, other.turns, strict=True):
            pairs.add(map(argument, turn), map(argument, other_turn))


def _results(block: int, function: Function) -> object:
    """Return what is returned, with views and numbers: a class has them once."""
    texts = [_canonical(text, block) for text in function.returns.values()]
    return texts, list(map(len, function.turns))


def _freed_mark(row: _Row) -> Mark:
    return row[0].frees[0][0]


def _pair_freed(ours: _Line, theirs: _Line, pairs: Pairs) -> None:
    """Pair what both free behind a line, and no line that both have reads: by its block."""
    rest = [m for m in map(_freed_mark, theirs.frees) if m.kind == "kept" and m not in pairs.ours]
    for mark in map(_freed_mark, ours.frees):
        if mark.kind == "kept" and mark not in pairs.theirs:
            distance = mark.owner - ours.block
            found = next((m for m in rest if m.owner - theirs.block == distance), None)
            if found:
                rest.remove(found)
                pairs.add([mark], [found])


@dataclass(slots=True)
class _Merge:
    """Writes the lines of two classes as those of one."""

    ours: Sequence[Body]
    theirs: Sequence[Body]
    pairs: Pairs
    fixed: frozenset[Mark]
    known: dict[int, dict[Mark, Mark]] = field(init=False)  # by block, what its first body's mean

    def __post_init__(self) -> None:
        self.known = {
            body.block: dict(zip(_all_marks(bodies[0]), _all_marks(body), strict=True))
            for bodies in (self.ours, self.theirs)
            for body in bodies
        }

    def rows(self, places: Iterable[_Place]) -> Iterator[_Row]:
        """Yield the lines of all bodies, with the `blocks` whose lines they are."""
        for place in places:
            one, other = (line.code if line else None for line in (place.ours, place.theirs))
            for row in [(one, other)] if place.same else [(one, None), (None, other)]:
                if any(code and code[0].text for code in row):
                    yield self._row(*row)
            yield from self._freed(
                *(line.frees if line else [] for line in (place.ours, place.theirs))
            )

    def _freed(self, ours: list[_Row], theirs: list[_Row]) -> list[_Row]:
        """Return what is freed behind a line, first by all."""
        there = {_freed_mark(row): row for row in theirs}
        paired = (self.pairs.theirs.get(_freed_mark(row)) for row in ours)
        rows = [
            self._row(row, there.pop(mark, None) if mark else None)
            for row, mark in zip(ours, paired, strict=True)
        ]
        rows += [self._row(None, row) for row in there.values()]
        return sorted(rows, key=lambda row: row[0].blocks)

    def _row(self, one: _Row | None, other: _Row | None) -> _Row:
        blocks = (*self._running(one, self.ours), *self._running(other, self.theirs))
        if len(blocks) == len(self.ours) + len(self.theirs):
            blocks = ()
        if one is None and other is not None:
            one = tuple(self._of_others(other[0], self.theirs[0], body) for body in self.ours)
        elif other is None and one is not None:
            other = tuple(self._of_others(one[0], self.ours[0], body) for body in self.theirs)
        statements = (*(one or ()), *(other or ()))
        return tuple(replace(s, blocks=tuple(sorted(blocks))) for s in statements)

    @staticmethod
    def _running(row: _Row | None, bodies: Sequence[Body]) -> Iterator[int]:
        return (body.block for body in bodies if row and row[0].runs_in(body.block))

    def _of_others(self, statement: Statement, first: Body, body: Body) -> Statement:
        """Write in a body's marks what it does not do: of a class's `first` body."""
        if statement.text and (statement.again or statement.nbytes):
            raise DiffersError  # the schedules differ: a reviewer should see that
        theirs = self.pairs.theirs if first is self.ours[0] else self.pairs.ours

        def written(mark: Mark) -> Mark:
            if mark.kind in IN_ALL:
                return mark
            if mark in theirs:
                return self.known[body.block][theirs[mark]]
            if mark.kind == "kept" and mark not in self.fixed:
                return replace(mark, owner=mark.owner - first.block + body.block)
            if mark.kind in ("kept", "value"):
                return mark
            raise DiffersError

        frees = tuple((written(mark), 0) for mark, _ in statement.frees)
        return replace(
            statement, text=fill(statement.text, lambda mark: str(written(mark))), frees=frees
        )


def _all_marks(body: Body) -> list[Mark]:
    marks = [*body.forward.marks(), *body.backward.marks()]
    return [*marks, *map(argument, body.arguments())]


def _refuse_many(rows: Sequence[_Row]) -> None:
    """Refuse what reads better as two classes."""
    few = max(len(rows) // 8, min(len(rows) // 4, 6))
    if sum(bool(row[0].blocks) for row in rows) > few:
        raise DiffersError


def _together(statements: Iterable[Statement]) -> tuple[Statement, ...]:
    """Return statements, what the same blocks free after each other as one."""
    found: list[Statement] = []
    for statement in statements:
        last = found[-1] if found else None
        if last and last.frees and statement.frees and last.blocks == statement.blocks:
            found[-1] = replace(last, frees=(*last.frees, *statement.frees))
        else:
            found.append(statement)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Owners:
    """In which blocks a class finds what others keep, if not at one distance for all of its bodies.

    `fixed` is in one and the same block, of `partners` each body has its own: the numbers of the
    blocks, "" where a body does not look there. Marks are those of the first body.
    """

    fixed: frozenset[Mark] = frozenset()
    partners: Mapping[Mark, tuple[str, ...]] = field(default_factory=dict)


def owners_of(bodies: Sequence[Body]) -> Owners:
    """Return where the bodies of a class find what other blocks keep.

    Raises:
        DiffersError: some find it at the same distance, and others do not.
    """
    fixed, partners = set(), {}
    for mark, owners in _owners(bodies).items():
        readers = [bodies[i].block for i in owners]
        distances = {owner - bodies[i].block for i, owner in owners.items()}
        if len(distances) > 1 and len({*owners.values()}) == 1:
            fixed.add(mark)
        elif is_partner([*owners.values()], readers):
            partners[mark] = tuple(str(owners.get(i, "")) for i in range(len(bodies)))
        elif len(distances) > 1:
            raise DiffersError
    if len({*partners.values()}) > MOST_PARTNERS:
        raise DiffersError
    return Owners(frozenset(fixed), partners)


def is_partner(owners: Sequence[int], readers: Sequence[int]) -> bool:
    """Tell whether readers have each its own owner, or few owners at many distances."""
    distances = {owner - reader for owner, reader in zip(owners, readers, strict=True)}
    found = len({*owners})
    return len(distances) > 1 and (len(distances) == len(owners) or 1 < found < len(distances))


def _owners(bodies: Sequence[Body]) -> dict[Mark, dict[int, int]]:
    """Return for what the first body reads of blocks in which block each body finds it."""
    found: dict[Mark, dict[int, int]] = {}
    for half in ("forward", "backward"):
        functions = [getattr(body, half) for body in bodies]
        returned = (tuple(map(Statement, function.returns.values())) for function in functions)
        lines = (function.statements for function in functions)
        for row in chain(zip(*lines, strict=True), zip(*returned, strict=True)):
            runs = [s.runs_in(body.block) for s, body in zip(row, bodies, strict=True)]
            for column in zip(*map(_kept, row), strict=True):
                own = {i: mark.owner for i, mark in enumerate(column) if runs[i]}
                found.setdefault(column[0], {}).update(own)
    return found


def _kept(statement: Statement) -> list[Mark]:
    return [mark for mark in statement.marks() if mark.kind == "kept"]
