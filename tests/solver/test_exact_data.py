"""The exact search on two real profiled graphs, where they are at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from remat_gen.bare.graph_file import parse_graph
from remat_gen.solver.blocks.judged_runs import incumbent_of
from remat_gen.solver.solve import Solver
from remat_gen.solver.stages.exact_search import search

DATA = Path(__file__).parents[3] / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the profiled graphs are not here")


@pytest.mark.parametrize(
    ("name", "share", "ratio"),
    [
        ("vgg16", 95, 1.0077),
        ("vgg16", 90, 1.0197),
        ("vgg16", 85, 1.0197),
        ("vgg16", 83, None),
        ("unet", 90, 1.0113),
        ("unet", 80, 1.0198),
        ("unet", 60, 1.0445),
        ("unet", 50, 1.0697),
        ("unet", 39, None),
    ],
)
def test_proved_optimum(name: str, share: int, ratio: float | None) -> None:
    problem = parse_graph((DATA / f"{name}.json").read_text()).problem()
    once = sum(operation.time_us for operation in problem.operations)
    plain = incumbent_of(problem, 0).offer(range(len(problem.operations)))
    assert plain is not None
    budget = plain.replay.peak_bytes * share // 100
    found = search(problem, budget)

    assert found.complete and found.bound_for == "all schedules"
    if found.runs is None:
        assert ratio is None
    else:
        judged = incumbent_of(problem, 0).offer(found.runs)
        assert judged is not None and judged.replay.peak_bytes <= budget
        assert round(judged.time_us / once, 4) == ratio


@pytest.mark.parametrize(("name", "floor"), [("vgg16", 0.831), ("unet", 0.395)])
def test_smallest_budget(name: str, floor: float) -> None:
    solver = Solver(parse_graph((DATA / f"{name}.json").read_text()), "auto")
    nbytes = solver.smallest_budget().nbytes

    assert nbytes == solver.problem.floor_bytes()
    assert round(nbytes / solver.plain.peak_bytes, 3) == floor
