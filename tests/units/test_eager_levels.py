"""What eager holds, taken apart into values that begin and end."""

from hypothesis import given
from hypothesis import strategies as st

from remat_gen.capture.units.joined import call_names, call_of, levels


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_levels_add_up_to_what_is_held(held: list[int]) -> None:
    values = levels(held)
    assert all(first <= last and nbytes > 0 for first, last, nbytes in values)
    for phase, nbytes in enumerate(held):
        assert sum(n for first, last, n in values if first <= phase <= last) == nbytes


def test_calls_are_told_apart_by_their_names() -> None:
    names = call_names(["h.1", "h.10", "h.1"])
    assert names == ["h.1", "h.10", "h.1#2"]
    operations = ["h.10.up", "h.1.up", "h.1#2.up", "eager.h.1#2.enter", "eager.start.leave"]
    assert [call_of(operation, names) for operation in operations] == [1, 0, 2, 2, -1]
