"""Sets as integers, and the orders that are made of them, against plain loops."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from remat_gen.solver.stages.first_run_order import FirstRuns, heaviest_chain
from remat_gen.solver.stages.plan_runs import StageChoice
from remat_gen.solver.states.bit_sets import mask_of, members, transposed


@given(st.sets(st.integers(0, 300)))
def test_members_of_a_mask(numbers: set[int]) -> None:
    assert members(mask_of(numbers)) == sorted(numbers)


@given(st.integers(0, 40), st.data())
def test_transposed(count: int, data: st.DataObject) -> None:
    masks = data.draw(st.lists(st.integers(0, (1 << count) - 1), min_size=count, max_size=count))
    plain = [mask_of(j for j in range(count) if masks[j] >> i & 1) for i in range(count)]
    assert transposed(masks) == plain


@st.composite
def _orders(draw: st.DrawFn) -> FirstRuns:
    """Draw a transitive order of up to eight operations."""
    count = draw(st.integers(1, 8))
    before = [0] * count
    for p in range(1, count):
        for u in draw(st.sets(st.integers(0, p - 1))):
            before[p] |= before[u] | 1 << u
    return FirstRuns(tuple(before), tuple(transposed(before)), (0,) * count, tuple(range(count)))


@given(_orders(), st.data())
def test_the_heaviest_chain_against_all_sets(order: FirstRuns, data: st.DataObject) -> None:
    count = len(order.before)
    numbers = st.integers(1, 20).map(float)
    weights = data.draw(st.lists(numbers, min_size=count, max_size=count))

    def chain(operations: tuple[int, ...]) -> bool:
        return all(order.before[b] >> a & 1 for a, b in combinations(operations, 2))

    sets = [s for k in range(count + 1) for s in combinations(range(count), k) if chain(s)]
    found = members(heaviest_chain(order, weights))
    assert tuple(found) in sets
    assert sum(weights[p] for p in found) == max(sum(weights[p] for p in s) for s in sets)


def test_stages_added_at_once_are_apart() -> None:
    before = [(1 << p) - 1 for p in range(12)]
    order = FirstRuns(tuple(before), tuple(transposed(before)), (0,) * 12, tuple(range(12)))
    choice = StageChoice.of(order, {5: 1})
    assert choice.stages == (5,)
    assert choice.add([5, 6, 10, 0], 3, 3)
    assert choice.stages == (0, 5, 6, 10)
    assert not choice.add([2, 5, 7], 1, 3, choice.stages)
