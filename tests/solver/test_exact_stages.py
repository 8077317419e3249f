"""The stage program against plain enumeration: its bound holds for all schedules."""

from __future__ import annotations

from typing import Any

import pytest
from exact_oracle import dags, ladder, layered, least_time, nine_nodes
from hypothesis import given, settings
from hypothesis import strategies as st

from remat_gen.solver.blocks.judged_runs import IncumbentSchedule, incumbent_of
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.stages import milp as quiet_milp
from remat_gen.solver.stages import stage_program as stages
from remat_gen.solver.stages.exact_search import TOLERANCE, refined, search
from remat_gen.solver.stages.first_run_order import first_runs
from remat_gen.solver.stages.stage_program import solve_stages
from remat_gen.solver.states.bit_graph import BitGraph

WORK = 1_000_000


def _staged(problem: Problem, budget_bytes: int) -> tuple[IncumbentSchedule, float]:
    graph = BitGraph(problem)
    incumbent = incumbent_of(problem, budget_bytes)
    plain = incumbent.offer(range(graph.count))
    assert plain is not None
    return incumbent, refined(graph, first_runs(graph), incumbent, plain, WORK)[0]


@pytest.mark.parametrize(
    ("count", "seed", "share", "ratio"), [(40, 1, 50, 1.0307), (40, 2, 70, 1.0067), (100, 1, 70, 1)]
)
def test_a_random_layered_graph(count: int, seed: int, share: int, ratio: float) -> None:
    """What is quickest here is found in the order of a plan alone, and by stages that are tight."""
    problem = layered(count, seed)
    plain = incumbent_of(problem, 0).offer(range(count))
    assert plain is not None
    found = search(problem, plain.replay.peak_bytes * share // 100)
    judged = incumbent_of(problem, 0).offer(found.runs or ())
    assert judged is not None
    assert judged.time_us <= problem.once_us * (ratio + 1e-4)


@settings(max_examples=150, deadline=None)
@given(dags(), st.integers(0, 30))
def test_bound_holds_for_all_schedules(problem: Problem, budget_bytes: int) -> None:
    optimum = least_time(problem, budget_bytes)
    incumbent, bound_us = _staged(problem, budget_bytes)
    tolerance = sum(o.time_us for o in problem.operations) * TOLERANCE

    if optimum is None:
        assert incumbent.best is None
    else:
        assert bound_us <= optimum + tolerance
        assert incumbent.time_us >= optimum
        assert incumbent.time_us > bound_us + tolerance or incumbent.time_us == optimum


def test_a_hard_program_is_not_begun_with_less_than_its_root_takes() -> None:
    graph = BitGraph(ladder(3))
    order, some = first_runs(graph), (2, 3)
    rows = stages.StageRows(graph, order, 9, some)
    assert rows.build()
    entries = len(rows.entries)
    enough, little = stages.BRANCHED * entries, stages.BRANCHED * entries - 1
    assert solve_stages(graph, order, 9, some, little).plan is not None
    left_out = solve_stages(graph, order, 9, some, little, hard=True)
    assert (left_out.plan, left_out.bound_us, left_out.work) == (None, 0.0, little)
    assert solve_stages(graph, order, 9, some, enough, hard=True).plan is not None


def test_an_older_highs_without_an_option_solves_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = BitGraph(ladder(3))
    expected = solve_stages(graph, first_runs(graph), 9, (3,), WORK)
    milp, asked = quiet_milp.milp, []

    def older(cost: Any, *, options: dict[str, Any], **arguments: Any) -> Any:
        asked.append(options)
        if stages.NO_RENS.keys() & options.keys():
            raise AttributeError
        return milp(cost, options=options, **arguments)

    monkeypatch.setattr(quiet_milp, "milp", older)
    assert solve_stages(graph, first_runs(graph), 9, (3,), WORK) == expected
    assert len(asked) == 2


def test_every_stage_of_a_chain_proves_its_optimum() -> None:
    problem = ladder(3)
    incumbent, bound_us = _staged(problem, 9)

    assert incumbent.time_us == pytest.approx(bound_us, rel=TOLERANCE) == 18


def test_operation_that_never_fits_is_infeasible() -> None:
    graph = BitGraph(nine_nodes())
    outcome = solve_stages(graph, first_runs(graph), 4, (6,), WORK)

    assert outcome.infeasible
