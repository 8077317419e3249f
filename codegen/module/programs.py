"""The programs of one file: a schedule for every step, and others for some of them."""

from __future__ import annotations

from dataclasses import dataclass

from remat_gen.ir.graph import Graph, Kind
from remat_gen.ir.rung import Rung
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Program:
    """A schedule, and its problem at the longest steps of its `rung`; None admits every step."""

    problem: Problem
    schedule: Schedule
    rung: Rung | None = None


def written_buffers(graph: Graph) -> list[str]:
    """Return the paths of the buffers that forward writes."""
    return _written(graph, Kind.BUFFER)


def written_inputs(graph: Graph) -> list[str]:
    """Return the inputs that forward writes, as it names them."""
    return _written(graph, Kind.INPUT)


def _written(graph: Graph, kind: Kind) -> list[str]:
    found = {mutation.target for mutation in graph.mutations}
    return [i.path for i in graph.inputs if i.tensor in found and i.kind is kind]
