"""Times are added alike under every Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from remat_gen.solver.law.sums import added


def test_rounding_errors_are_not_carried_along() -> None:
    """`sum` gives 1.0 from Python 3.12 on."""
    assert added([0.1] * 10) == 0.9999999999999999
    assert added([]) == 0.0


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_it_is_the_last_of_numpys_running_sums(times: list[float]) -> None:
    assert added(iter(times)) == float(np.cumsum(times)[-1])
