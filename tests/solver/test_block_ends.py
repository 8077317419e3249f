"""Where a block of backward begins: what reads nothing of forward may stand on either side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remat_gen.solver.blocks.block_chain import _hand_on_least

Row = tuple[list[int], list[bool], list[int]]


@pytest.mark.parametrize(
    ("handed_on", "expected"),
    [
        ([9, 5, 5, 5, 5], [1, 1, 1, 0]),  # nothing is won
        ([9, 5, 5, 3, 5], [1, 1, 1, 0]),
        ([9, 5, 3, 5, 5], [1, 1, 0, 0]),
        ([9, 3, 5, 5, 5], [1, 0, 0, 0]),
        ([9, 3, 3, 5, 5], [1, 1, 0, 0]),  # as few as that takes
    ],
)
def test_the_least_is_handed_on(handed_on: list[int], expected: list[int]) -> None:
    places = [1, 1, 1, 0]
    _hand_on_least(places, [True, False, False, True], handed_on)
    assert places == expected


def test_a_block_hands_on_as_much_as_the_next_one() -> None:
    """A mean's gradient is small; made as large as a layer's it goes with what made it."""
    reads = [True, False, True, True, False, True]
    places = [2, 2, 1, 1, 1, 0]
    _hand_on_least(places, reads, [0, 1, 8, 8, 8, 8])
    assert places == [2, 2, 1, 1, 1, 0], "1 would be less, and the next block hands on 8"
    _hand_on_least(places, reads, [0, 1, 8, 8, 2, 2])
    assert places == [2, 1, 1, 1, 1, 0]


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Draw operations of backward: their blocks, whether they read forward, what is alive then."""
    reads = draw(st.lists(st.booleans(), min_size=1, max_size=20))
    place, places = 5, []
    for read in reads:
        place -= draw(st.integers(0, min(2, place))) if read else 0
        places.append(place)
    return places, reads, draw(st.lists(st.integers(0, 9), min_size=21, max_size=21))


@given(rows())
def test_places_never_rise_and_what_reads_forward_stays(row: Row) -> None:
    before, reads, handed_on = row
    places = [*before]
    _hand_on_least(places, reads, handed_on)
    assert places == sorted(places, reverse=True)
    for then, now, read in zip(before, places, reads, strict=True):
        assert then == now if read else then >= now
