"""In which block each output leaves: the model's own in the last, what forward keeps where made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from remat_gen.ir.graph import Graph, Output
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Run, Schedule


@dataclass(frozen=True, slots=True)
class LeavingBlocks:
    """The blocks whose forward returns the outputs, and whose backward gets their gradients.

    `of` has them by values of the problem: of outputs, and of the gradients that come in. What is
    kept leaves behind the block that makes it where an earlier part of backward reads its gradient.
    """

    last: int
    of: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def find(cls, graph: Graph, problem: Problem, schedule: Schedule) -> LeavingBlocks:
        """Find those of a schedule."""
        last = schedule.block_count - 1
        index = {value.name: v for v, value in enumerate(problem.values)}
        first, reading = _moments(problem, schedule)
        of: dict[int, int] = {}
        tangents: dict[int, list[int]] = {}
        for output in graph.outputs:
            if output.tensor is None or graph.storage_of(output.tensor).kind.outside:
                continue
            v = index[graph.storage_of(output.tensor).name]
            block = first.get(v, last) if output.kept else last
            if output.tangent:
                d = index[graph.storage_of(output.tangent).name]
                tangents.setdefault(v, []).append(d)
                block = max(block, reading.get(d, 0))
            of[v] = max(of.get(v, 0), block)
        of |= {d: of[v] for v, incoming in tangents.items() for d in incoming}
        return cls(last, of)

    def at(self, v: int) -> int:
        """Return the block in which a value leaves, or comes in."""
        return self.of.get(v, self.last)


def _moments(problem: Problem, schedule: Schedule) -> tuple[dict[int, int], dict[int, int]]:
    """Return the block that makes each value first, and the one whose backward reads it first."""
    made: dict[int, int] = {}
    reads: dict[int, int] = {}
    for segment in schedule.segments:
        for p in (step.operation for step in segment.steps if isinstance(step, Run)):
            operation = problem.operations[p]
            for v in operation.outputs:
                made.setdefault(v, segment.block)
            for v in operation.inputs if segment.backward else ():
                reads.setdefault(v, segment.block)
    return made, reads


def kept_paths(graph: Graph, returns: Mapping[str, str]) -> list[str]:
    """Return where what a function returns is kept, in order; the model's own outputs are first."""
    return [path for path in (output.kept for output in returned(graph, returns)) if path]


def returned(graph: Graph, returns: Mapping[str, str]) -> list[Output]:
    """Return the outputs that a function returns."""
    return [graph.outputs[int(i)] for i in returns]
