"""Work limits: what is not proved is counted and never taken for infeasible."""

from __future__ import annotations

from solver_problems import GptShape, gpt_like

from remat_gen.solver.blocks.local_block import LocalBlock, gradients, localised
from remat_gen.solver.blocks.option_grid import Grid, grid_choices, simple_choices
from remat_gen.solver.blocks.partition import partition


def _layer() -> LocalBlock:
    problem = gpt_like(2, GptShape(batch=2, tokens=64, width=64, heads=4, vocabulary=100))
    chain = partition(problem)
    return localised(problem, chain, gradients(problem, chain))[1]

    block = _layer()
    choices, asked, unproved = grid_choices(block, Grid(4, 4, rlimit=1000))
    assert unproved == asked > 0
    assert choices == simple_choices(block)


def test_the_limit_is_per_point() -> None:
    """Many proved points in a row use more than one point's work together."""
    block = _layer()
    choices, _, unproved = grid_choices(block, Grid(8, 4, rlimit=5_000_000))
    assert unproved == 0
    assert len(choices.options) > 8


def test_options_dominate_none_of_each_other() -> None:
    options = grid_choices(_layer(), Grid(4, 4))[0].options
    figures = [(o.rerun_us, o.saved_bytes, o.peak_bytes) for o in options]
    assert any(rerun == 0 for rerun, _, _ in figures)
    assert any(saved == 0 for _, saved, _ in figures)
    assert len(set(figures)) > 4
