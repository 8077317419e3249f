"""Strategy `ogc`: optimal gradient checkpoints on arbitrary graphs.

Source: Jianwei Feng and Dong Huang, "Optimal Gradient Checkpoint Search for Arbitrary Computation
Graphs", CVPR 2021 (arXiv:1808.00079). The paper knows no budget: it takes the limit on what a
segment holds that minimises checkpoints plus limit. Here the quickest of all limits' schedules that
fits the budget is taken.

Vertices are forward operations rather than tensors: several outputs are one checkpoint. A vertex
holds, inside a segment, the outputs that backward reads; as a checkpoint, all that is read. A bare
graph without backward flags has no forward graph to divide: nothing is re-run there.
"""

from __future__ import annotations

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort, evenly
from remat_gen.solver.published.checkpoints import Weights, cheapest, division_tree, limits
from remat_gen.solver.published.division import Dag
from remat_gen.solver.published.local_forwards import droppable_values, searching

LIMITS = {Effort.QUICK: 60, Effort.NORMAL: 250, Effort.THOROUGH: 2000}
"""Limits on a segment that are tried, evenly among all there are."""


def checkpoint_choices(problem: Problem, count: int) -> list[frozenset[int]]:
    """Return the values that are not retained, for at most `count` limits on a segment."""
    dag, outputs = _graph_of(problem)
    weights = _weights(problem, outputs)
    root = division_tree(dag, weights)
    tried = evenly(limits(root), count)
    found = dict.fromkeys(cheapest(root, weights, limit) for limit in tried)
    every = frozenset(v for made in outputs for v in made)
    return [every.difference(*(outputs[vertex] for vertex in chosen)) for chosen in found]


search = searching(lambda problem, effort: checkpoint_choices(problem, LIMITS[effort]))


def _graph_of(problem: Problem) -> tuple[Dag, list[tuple[int, ...]]]:
    """Return the graph of forward, and by vertex the droppable values that it makes.

    Operations with such values are vertices 1 …; 0 and the last are the ends.
    """
    droppable = droppable_values(problem)
    outputs: list[tuple[int, ...]] = [()]
    vertex_of: dict[int, int] = {}
    successors: list[list[int]] = [[]]
    for operation in problem.operations[: problem.forward_count]:
        made = tuple(v for v in operation.outputs if v in droppable)
        if not made:
            continue
        sources = [vertex_of[v] for v in operation.inputs if v in vertex_of] or [0]
        for source in sources:
            successors[source].append(len(outputs))
        vertex_of.update(dict.fromkeys(made, len(outputs)))
        outputs.append(made)
        successors.append([])
    for targets in successors:
        if not targets:
            targets.append(len(outputs))
    outputs.append(())
    return Dag([*successors, []]), outputs


def _weights(problem: Problem, outputs: list[tuple[int, ...]]) -> Weights:
    backward = problem.operations[problem.forward_count :]
    read = {v for operation in backward for v in operation.inputs}

    def nbytes(values: list[int]) -> int:
        return sum(problem.values[v].nbytes for v in values)

    stored = [nbytes(list(made)) for made in outputs]
    held = [nbytes([v for v in made if v in read]) for made in outputs]
    return Weights(stored, held)
