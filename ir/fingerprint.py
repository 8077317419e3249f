"""One hash for what was traced: operations, shapes, wiring. Lines and names of the user's are out:
a comment above the model leaves it as it is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from remat_gen.ir.graph import Graph, Operation


def graph_sha256(graph: Graph) -> str:
    """Return the SHA-256 of a graph, the same under any hash seed."""
    digest = hashlib.sha256()
    for line in _lines(graph):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def _lines(graph: Graph) -> Iterator[str]:
    yield from map(repr, graph.inputs)
    yield from map(_operation, graph.operations)
    for view in graph.views:
        yield repr((view.tensor, view.base, view.target, view.args, view.kwargs, view.index))
    yield from (repr(graph.tensors[name]) for name in sorted(graph.tensors))
    yield from (repr(graph.storages[name]) for name in sorted(graph.storages))
    yield from map(repr, (*graph.outputs, *graph.gradients, *graph.mutations))
    yield from map(repr, graph.lengths)
    yield from (repr((name, graph.layouts[name])) for name in sorted(graph.layouts))


def _operation(operation: Operation) -> str:
    traits = sorted(trait.value for trait in operation.traits)
    call = (operation.target, operation.args, operation.kwargs, operation.outputs)
    return repr((operation.name, *call, operation.phase.value, traits))
