"""What a functional trace does not show of eager's nodes of autograd.

Some save an input whole, read nothing of it but the shape, and hold it until they have ended: the
operators whose formula in PyTorch's derivatives.yaml names `self` and makes zeros of its shape.
Elsewhere the formula saves sizes, or backward reads the tensor. Zeros are then filled in place,
where the trace has a second tensor.
"""

from __future__ import annotations

from remat_gen.ir.graph import Graph, Phase, Ref

_UNREAD = (
    "aten.gather.default",
    "aten.take.default",
    "aten.masked_select.default",
    "aten.cummax.default",
    "aten.cummin.default",
)
_ZEROS = ("aten.new_zeros.default", "aten.zeros.default", "aten.zeros_like.default")
FILLING = (
    "aten.scatter_add.default",
    "aten.scatter.src",
    "aten.scatter.value",
    "aten.index_put.default",
    "aten.index_add.default",
    "aten.index_copy.default",
    "aten.index_fill.int_Scalar",
    "aten.masked_scatter.default",
)


def saves_unread(target: str) -> bool:
    """Tell whether an operator's node saves its first input for the shape alone."""
    return target in _UNREAD


def saved_unread(graph: Graph) -> dict[int, str]:
    """Return the storage that a node of autograd holds and does not read, by the node's number."""
    return {
        operation.node: graph.reads(operation)[0]
        for operation in graph.operations
        if operation.phase is Phase.FORWARD and operation.node is not None
    }


def filled(graph: Graph) -> dict[str, str]:
    """Return by operation the zeros that its node of autograd has made, and that it fills."""
    zeros = {o.outputs[0]: o for o in graph.operations if o.target in _ZEROS}
    found = {}
    for operation in graph.operations:
        if operation.phase is Phase.BACKWARD and operation.target in FILLING:
            first = operation.args[0]
            made = zeros.get(first.name) if isinstance(first, Ref) else None
            if made and made.node is not None and made.node == operation.node:
                (found[operation.name],) = graph.writes(made)
    return found
