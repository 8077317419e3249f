"""Which of the model's outputs a gradient comes from; where none of them got one, it is None."""

from __future__ import annotations

from remat_gen.ir.graph import Graph, Phase


def partly_reached(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Return the inputs whose gradient comes from some of the differentiated outputs only.

    Keys are tensors of inputs (`Gradient.of`), values the positions of those outputs.
    """
    sources: dict[str, frozenset[int]] = {}
    for i, output in enumerate(graph.outputs):
        if output.tangent:
            storage = graph.tensors[output.tangent].storage
            sources[storage] = sources.get(storage, frozenset((i,)))
    everything = frozenset[int]().union(*sources.values())
    for operation in graph.operations:
        if operation.phase is Phase.BACKWARD:
            reads = (sources.get(s, frozenset()) for s in graph.reads(operation))
            reached = frozenset[int]().union(*reads)
            sources.update((s, reached) for s in graph.writes(operation))
    found = {
        g.of: sources.get(graph.tensors[g.tensor].storage, frozenset())
        for g in graph.gradients
        if g.tensor
    }
    return {of: tuple(sorted(r)) for of, r in found.items() if r and r != everything}
