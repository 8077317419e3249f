"""Where a part is cut, which stretches are tried, and which cover takes the least time."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remat_gen.solver.compiled.parts import Part, cheapest, joined, pieces_of, stretches
from remat_gen.solver.law.problem import Operation, Problem, Value
from remat_gen.solver.law.schedule import Free, Run, Schedule, Segment

# a → b → c in a chain, then e of w alone, between them a value that dies
PROBLEM = Problem(
    (
        Operation("scores", 1.0, 0, (0,), (1,), False),
        Operation("masked", 1.0, 0, (1,), (2,), False),
        Operation("softmax", 1.0, 0, (2,), (3,), False),
        Operation("copy", 1.0, 0, (4,), (5,), False),
    ),
    tuple(Value(name, 10) for name in "abcdwe"),
)
STEPS = (Run(0), Run(1), Free(1), Run(2), Free(2), Run(3))
SCHEDULE = Schedule((Segment(0, False, STEPS), Segment(0, True, ())))
WHOLE = Part(0, 0, 6)


def test_a_part_is_cut_beside_a_kernel_of_its_own_and_where_nothing_is_shared() -> None:
    found = pieces_of(PROBLEM, SCHEDULE, WHOLE, (False, False, True, False))
    assert found == (Part(0, 0, 2), Part(0, 3, 4), Part(0, 5, 6))
    found = pieces_of(PROBLEM, SCHEDULE, WHOLE, (False,) * 4)
    assert found == (Part(0, 0, 4), Part(0, 5, 6))


def test_a_part_without_cuts_is_one_piece() -> None:
    part = Part(0, 0, 4)
    assert pieces_of(PROBLEM, SCHEDULE, part, (False,) * 4) == (part,)


def _pieces(count: int) -> tuple[Part, ...]:
    return tuple(Part(0, 2 * i, 2 * i + 1) for i in range(count))


@pytest.mark.parametrize(
    "count, tried", [(1, 1), (2, 3), (5, 15), (6, 1 + 6 + 6), (11, 1 + 15 + 13)]
)
def test_so_many_stretches_are_tried(count: int, tried: int) -> None:
    found = list(stretches(_pieces(count)))
    assert len(found) == len(set(found)) == tried
    assert Part(0, 0, 2 * count - 1) in found


@given(data=st.data(), count=st.integers(1, 4))
def test_the_cheapest_cover_is_that_of_brute_force(data: st.DataObject, count: int) -> None:
    pieces = _pieces(count)
    times = st.integers(0, 9).map(float)
    apart = {piece: data.draw(times) for piece in pieces}
    compiled = {part: data.draw(st.none() | times) for part in stretches(pieces)}
    chosen = cheapest(pieces, apart.__getitem__, compiled.get)
    assert _time(pieces, chosen, apart, compiled) == min(
        _time(pieces, cover, apart, compiled) for cover in _covers(pieces, compiled)
    )


def _covers(pieces: tuple[Part, ...], compiled: dict[Part, float | None]) -> list[tuple[Part, ...]]:
    known = [part for part, time_us in compiled.items() if time_us is not None]
    subsets = product((False, True), repeat=len(known))
    covers = [tuple(p for p, use in zip(known, s, strict=True) if use) for s in subsets]
    return [c for c in covers if sum(len(_inside(pieces, p)) for p in c) == len(_in(pieces, c))]


def _inside(pieces: tuple[Part, ...], part: Part) -> set[Part]:
    return {piece for piece in pieces if part.start <= piece.start and piece.stop <= part.stop}


def _in(pieces: tuple[Part, ...], cover: tuple[Part, ...]) -> set[Part]:
    return set().union(*(_inside(pieces, part) for part in cover))


def _time(
    pieces: tuple[Part, ...],
    cover: tuple[Part, ...],
    apart: dict[Part, float],
    compiled: dict[Part, float | None],
) -> float:
    alone = set(pieces) - _in(pieces, cover)
    return sum(compiled[part] or 0.0 for part in cover) + sum(apart[piece] for piece in alone)


def test_of_equal_times_what_is_not_compiled_stays() -> None:
    pieces = _pieces(2)
    assert cheapest(pieces, lambda _: 1.0, lambda _: 1.0) == (joined(*pieces),)
    assert cheapest(pieces, lambda _: 1.0, lambda part: 1.0 if part in pieces else None) == ()
