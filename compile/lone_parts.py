"""A few operations as a function, apart from any schedule: to learn what they cost together."""

from __future__ import annotations

from collections.abc import Iterator

from remat_gen.codegen.expressions.expressions import Expressions
from remat_gen.codegen.expressions.marks import value
from remat_gen.codegen.statements.long_sums import in_two_steps
from remat_gen.codegen.statements.statements import Statement
from remat_gen.compile.part_text import PartText, write_part
from remat_gen.ir.graph import Graph, Operation


def write_operations(graph: Graph, operations: tuple[Operation, ...]) -> PartText:
    """Write operations, one after another, as a function that returns what the last one makes."""
    expressions = Expressions(graph, value)
    targets = [f"{', '.join(_targets(graph, o))} = " for o in operations]
    calls = [expressions.call(o, again=False) for o in operations]
    written = [in_two_steps(expressions, o) or c for o, c in zip(operations, calls, strict=True)]
    statements = [Statement(t + text) for t, text in zip(targets, written, strict=True)]
    apart = [t + text for t, text in zip(targets, calls, strict=True)]
    results = tuple(map(value, graph.writes(operations[-1])))
    return write_part(graph, statements, apart, results, operations)


def _targets(graph: Graph, operation: Operation) -> Iterator[str]:
    for output in operation.outputs:
        yield str(value(graph.tensors[output].storage)) if output else "_"
