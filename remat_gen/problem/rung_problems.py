"""The scheduling problem of a rung: that of a plan whose example is the longest step it admits."""

from __future__ import annotations

from remat_gen.capture.lower.shorter_steps import narrowed
from remat_gen.ir.costs import Costs
from remat_gen.ir.errors import TraceError
from remat_gen.ir.graph import Graph
from remat_gen.ir.rung import Rung
from remat_gen.problem.smaller_problems import written_over_as
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.law.problem import Problem


def rung_graph(graph: Graph, rung: Rung) -> Graph:
    """Return the graph of the longest steps that a rung admits.

    Raises:
        TraceError: the step has no such lengths.
    """
    try:
        return narrowed(graph, rung.numbers(graph.lengths))
    except (ArithmeticError, ValueError) as error:
        raise TraceError(f"--rungs {rung}: the step cannot be so short: {error}") from error


def rung_problem(there: Graph, costs: Costs, here: Problem) -> Problem:
    """Return the problem of a rung; what is written over is decided by the whole range's."""
    return written_over_as(here, problem_of(there, costs))
