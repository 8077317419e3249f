"""Buffers that are updated in place, as eager does it: `counter.add_(1)` for a sum and a copy."""

from __future__ import annotations

from collections.abc import Container

from remat_gen.codegen.expressions.in_place_forms import method_of
from remat_gen.ir.graph import Graph, Mutation, Operation, Ref, refs_in


def updates_in_place(graph: Graph, leaving: Container[str]) -> frozenset[str]:
    """Return the names of the operations that may update a buffer or an input.

    Such a one makes a buffer's new value from the old one, element by element, and nothing else
    reads what it makes. `leaving` are the storages that somebody else holds.
    """
    read = {s for operation in graph.operations for s in graph.reads(operation)}
    taken = [mutation.tensor for mutation in graph.mutations]
    makers = {o.outputs[0]: o for o in graph.operations if o.single and method_of(o)}
    return frozenset(
        makers[mutation.tensor].name
        for mutation in graph.mutations
        if mutation.tensor in makers
        and taken.count(mutation.tensor) == 1
        and graph.tensors[mutation.tensor].storage not in read
        and graph.tensors[mutation.tensor].storage not in leaving
        and _is_update(graph, mutation, makers[mutation.tensor])
    )


def _is_update(graph: Graph, mutation: Mutation, operation: Operation) -> bool:
    first, *others = operation.args
    if first != Ref(mutation.target):
        return False
    old, new = graph.tensors[mutation.target], graph.tensors[mutation.tensor]
    shared = {graph.tensors[name].storage for name in refs_in((*others, operation.kwargs))}
    layouts = graph.layouts
    return (
        (old.shape, old.stride, old.dtype) == (new.shape, new.stride, new.dtype)
        and layouts.get(old.name) == layouts.get(new.name)
        and old.storage not in shared
    )
