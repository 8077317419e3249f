"""Which of the model's outputs a gradient comes from; where none of them got one, it is None."""

from __future__ import annotations

from collections.abc import Mapping

from remat_gen.ir.graph import Graph, Operation, Output, Phase

Reach = Mapping[str, frozenset[int]]


def partly_reached(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Return the inputs whose gradient comes from some of the differentiated outputs only.

    Keys are tensors of inputs (`Gradient.of`), values the positions of those outputs.
    """
    sources = reach_of(graph)
    everything = frozenset[int]().union(*sources.values())
    found = {
        g.of: sources.get(graph.tensors[g.tensor].storage, frozenset())
        for g in graph.gradients
        if g.tensor
    }
    sure = surely_reached(graph)
    partly = {of: r for of, r in found.items() if r and r != everything and r.isdisjoint(sure)}
    return {of: tuple(sorted(r)) for of, r in partly.items()}


def surely_reached(graph: Graph) -> tuple[int, ...]:
    """Return the output that gets a gradient in each step: the only one beside what is kept.

    A step that sends one into what is kept alone is refused, so that few gradients may be missing.
    """
    outputs = graph.outputs
    tangents = [i for i, output in enumerate(outputs) if output.tangent and not output.kept]
    some = any(output.tangent and output.kept for output in outputs)
    return tuple(tangents) if some and len({outputs[i] for i in tangents}) == 1 else ()


def reach_of(graph: Graph) -> dict[str, frozenset[int]]:
    """Return for each storage that holds gradients the positions of the outputs they come from."""
    sources = _tangents(graph)
    for operation in graph.operations:
        if operation.phase is Phase.BACKWARD:
            reached = frozenset[int]().union(*terms_of(graph, operation, sources).values())
            sources.update((s, reached) for s in graph.writes(operation))
    return sources


def terms_of(graph: Graph, operation: Operation, sources: Reach) -> dict[str, frozenset[int]]:
    """Return the gradients that an operation of backward reads, each with where it comes from."""
    if operation.phase is not Phase.BACKWARD:
        return {}
    return {s: sources[s] for s in graph.reads(operation) if sources.get(s)}


def apart(graph: Graph, operation: Operation, sources: Reach) -> dict[str, frozenset[int]]:
    """Return the gradients among those an operation joins that others may come without.

    Where no output of one got a gradient, eager has no such term. Zeros that went through backward
    are none either, unless a derivative is infinite: what was sent in as zeros stays it.
    """
    terms = terms_of(graph, operation, sources)
    everything = frozenset[int]().union(*terms.values())
    sent, sure = _tangents(graph), surely_reached(graph)
    others = {s: reach for s, reach in terms.items() if reach.isdisjoint(sure) and s not in sent}
    return {s: reach for s, reach in others.items() if reach != everything}


def asks_what_came(graph: Graph) -> bool:
    """Tell whether a step must know which of the outputs got a gradient."""
    if len(_tangents(graph)) < 2:
        return False
    sources = reach_of(graph)
    joins = any(apart(graph, operation, sources) for operation in graph.operations)
    return joins or bool(partly_reached(graph))


def read_on(graph: Graph) -> tuple[Output, ...]:
    """Return the outputs that others are made of: part of their gradient comes from inside.

    Autograd does not see that part: all outputs come out of one function.
    """
    read = (o for o in graph.outputs if o.tensor and o.requires_grad and o.read_on)
    return tuple(dict.fromkeys(o for o in read if not graph.storage_of(str(o.tensor)).kind.outside))


def _tangents(graph: Graph) -> dict[str, frozenset[int]]:
    sources: dict[str, frozenset[int]] = {}
    for i, output in enumerate(graph.outputs):
        if output.tangent:
            storage = graph.tensors[output.tangent].storage
            sources[storage] = sources.get(storage, frozenset((i,)))
    return sources
