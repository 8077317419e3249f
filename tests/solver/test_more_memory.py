"""More memory costs no time: what is found within less is a candidate for a larger budget."""

from __future__ import annotations

import pytest
from exact_oracle import bare, dags, graph_of
from hypothesis import HealthCheck, given, settings

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.solve import InfeasibleError, Solver
from remat_gen.solver.stages import exact_search as exact_search
from remat_gen.solver.stages.exact_search import LIMITS, Limits

_RANDOM_26 = (  # time, bytes, inputs
    (1, 2, ()),
    (9, 4, (0,)),
    (9, 5, (0, 1)),
    (8, 5, (2,)),
    (5, 11, (2,)),
    (9, 9, (0, 4)),
    (1, 6, (2, 3)),
    (3, 6, (5,)),
    (6, 9, (7,)),
    (4, 1, (4,)),
    (5, 11, (3, 8)),
    (3, 5, (4, 7, 9)),
    (3, 5, (6, 9)),
    (9, 11, (8, 11)),
    (7, 6, (9, 10, 13)),
    (9, 3, (8, 11, 13)),
    (5, 4, (10,)),
    (5, 11, (13, 15)),
    (5, 4, (13, 16, 17)),
    (5, 3, (13, 16)),
    (8, 11, (19,)),
    (5, 7, (16, 18)),
    (8, 3, (16, 17)),
    (7, 8, (19, 21)),
    (6, 8, (17,)),
    (9, 3, (18, 22, 23)),
)
_LITTLE = Limits(first_states=40, programs=1, last_states=40)


@pytest.mark.parametrize(("budget", "ratio"), [(37, 1.3312), (39, 1.3182)])
def test_a_random_graph_of_26_nodes(budget: int, ratio: float) -> None:
    solver = Solver(graph_of(bare(_RANDOM_26)), "auto")
    found = solver.solve(budget)
    assert found.replay.time_us / solver.plain.time_us == pytest.approx(ratio, abs=1e-4)


@given(dags(most=10))
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_also_where_nothing_is_proved(monkeypatch: pytest.MonkeyPatch, problem: Problem) -> None:
    with monkeypatch.context() as patched:
        for effort in Effort:
            patched.setitem(LIMITS, effort, _LITTLE)
        patched.setattr(exact_search, "PROGRAMS", 1)
        solver = Solver(graph_of(problem), "auto")
        times = []
        for budget in range(1, min(solver.plain.peak_bytes, 64) + 1):
            try:
                times.append(solver.solve(budget).replay.time_us)
            except InfeasibleError:
                times.append(float("inf"))
        assert times == sorted(times, reverse=True)
