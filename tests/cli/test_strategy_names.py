"""The command line knows the solver's strategies, without importing the solver."""

from __future__ import annotations

from remat_gen.ask.request import Strategy
from remat_gen.solver.solve import STRATEGIES


def test_the_names_are_the_solvers() -> None:
    assert {strategy.value for strategy in Strategy} == set(STRATEGIES)
    assert next(iter(Strategy)).value == STRATEGIES[0] == "auto"
