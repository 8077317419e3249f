"""The programs of one file: a schedule for every step, and others for some of them."""

from __future__ import annotations

from dataclasses import dataclass

from remat_gen.codegen.expressions.expressions import BATCH_NORM
from remat_gen.ir.graph import Graph, Kind
from remat_gen.ir.rung import Rung
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Schedule

_NORMS = (BATCH_NORM, "remat.cudnn_batch_norm.default")


@dataclass(frozen=True, slots=True)
class Program:
    """A schedule, and its problem at the longest steps of its `rung`; None admits every step."""

    problem: Problem
    schedule: Schedule
    rung: Rung | None = None


def written_buffers(graph: Graph) -> list[str]:
    """Return the paths of the buffers that forward writes."""
    return _written(graph, Kind.BUFFER)


def reads_what_it_writes(graph: Graph) -> bool:
    """Tell whether results are of buffers that forward writes: of another step's they are others.

    BatchNorm's results are not of its statistics, and a counter's new number goes nowhere else.
    """
    buffers = {i.tensor for i in graph.inputs if i.kind is Kind.BUFFER}
    written = {mutation.target for mutation in graph.mutations} & buffers
    made = {graph.tensors[tensor].storage for tensor in written}
    for operation in graph.operations:
        if operation.target not in _NORMS and not made.isdisjoint(graph.reads(operation)):
            made.update(graph.writes(operation))
    results = (*(output.tensor for output in graph.outputs), *(g.tensor for g in graph.gradients))
    return any(tensor and graph.tensors[tensor].storage in made for tensor in results)


def written_inputs(graph: Graph) -> list[str]:
    """Return the inputs that forward writes, as it names them."""
    return _written(graph, Kind.INPUT)


def _written(graph: Graph, kind: Kind) -> list[str]:
    found = {mutation.target for mutation in graph.mutations}
    return [i.path for i in graph.inputs if i.tensor in found and i.kind is kind]
