"""The scheduling problem at smaller lengths, where operations need more room than at the example's.

Such lengths stand in the costs. All other operations fit at them where they fit at the example's.
"""

from __future__ import annotations

from dataclasses import replace

from remat_gen.capture.lower.shorter_steps import sized
from remat_gen.ir.costs import Cost, Costs
from remat_gen.ir.graph import Graph
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.all_sizes import Elsewhere
from remat_gen.solver.law.problem import Problem


def elsewhere_of(graph: Graph, costs: Costs, here: Problem | None = None) -> tuple[Elsewhere, ...]:
    """Return the problems that a schedule must fit in besides `here`, the example's."""
    lengths = {there.lengths for cost in costs.operations.values() for there in cost.smaller}
    here = here or problem_of(graph, costs)
    found = []
    for numbers in sorted(lengths, reverse=True):
        operations = {name: _at(cost, numbers) for name, cost in costs.operations.items()}
        there = problem_of(sized(graph, numbers), replace(costs, operations=operations))
        found.append(Elsewhere(_where(graph, numbers), written_over_as(here, there)))
    return tuple(found)


def written_over_as(here: Problem, there: Problem) -> Problem:
    """Return a problem at other lengths: what is written over is decided by the example's."""
    pairs = zip(there.operations, here.operations, strict=True)
    return replace(there, operations=tuple(replace(o, over=own.over) for o, own in pairs))


def _at(cost: Cost, numbers: tuple[int, ...]) -> Cost:
    found = {there.lengths: there.workspace_bytes for there in cost.smaller}
    return replace(cost, workspace_bytes=found.get(numbers, 0), smaller=())


def _where(graph: Graph, numbers: tuple[int, ...]) -> str:
    """Return "a batch of 1": the lengths that are not the example's."""
    pairs = zip(graph.lengths, numbers, strict=True)
    return " and ".join(f"a {len_.name} of {n}" for len_, n in pairs if n != len_.maximum)
