"""The exact search on graphs whose optima are known (DESIGN.md, section 8)."""

from __future__ import annotations

import pytest
from exact_oracle import dense, ladder, nine_nodes, smallest, uniform

from remat_gen.solver.law.liveness import to_schedule
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import replay
from remat_gen.solver.stages.exact_search import search


def _optimum(problem: Problem, slots: int) -> float | None:
    found = search(problem, slots)
    assert found.complete and found.bound_for == "all schedules"
    return None if found.runs is None else found.lower_bound_us


@pytest.mark.parametrize(
    ("slots", "time_us"),
    [(2, None), *zip(range(3, 11), (45, 26, 22, 21, 20, 19, 18, 17), strict=True)],
)
def test_uniform_chain(slots: int, time_us: float | None) -> None:
    assert _optimum(uniform(8, own_output=False), slots) == time_us


@pytest.mark.parametrize(
    ("slots", "time_us"),
    [(3, None), *zip(range(4, 11), (38, 24, 21, 20, 19, 18, 17), strict=True)],
)
def test_uniform_chain_that_needs_its_output(slots: int, time_us: float | None) -> None:
    assert _optimum(uniform(8, own_output=True), slots) == time_us


@pytest.mark.parametrize(
    ("slots", "time_us"),
    [(5, None), *zip(range(6, 13), (28, 21, 19, 18, 17, 16, 15), strict=True)],
)
def test_unet_ladder(slots: int, time_us: float | None) -> None:
    assert _optimum(ladder(3), slots) == time_us


@pytest.mark.parametrize("layers", [2, 4, 6])
def test_dense_graph_saves_nothing(layers: int) -> None:
    problem = dense(layers)
    plain = replay(
        problem, to_schedule(problem, Program(((), tuple(range(2 * layers)))))
    ).peak_bytes

    assert _optimum(problem, plain) == 2 * layers
    assert _optimum(problem, plain - 1) is None
    assert smallest(problem) == plain


def test_nine_nodes_where_stages_are_infeasible() -> None:
    assert _optimum(nine_nodes(), 5) == 15
    assert _optimum(nine_nodes(), 4) is None
    assert smallest(nine_nodes()) == 5


@pytest.mark.parametrize(
    ("problem", "slots"),
    [(uniform(8, own_output=False), 3), (uniform(8, own_output=True), 4), (ladder(3), 6)],
)
def test_smallest_budget(problem: Problem, slots: int) -> None:
    assert smallest(problem) == slots
