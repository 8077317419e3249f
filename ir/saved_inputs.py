"""Inputs that autograd saves whole and whose backward reads nothing of them but the shape.

A trace shows what backward reads, and not that eager holds these until their node has ended. They
are the operators whose formula in PyTorch's derivatives.yaml names `self` alone and makes zeros of
its shape: everywhere else the formula saves sizes, or backward reads the tensor.
"""

from __future__ import annotations

from remat_gen.ir.graph import Graph, Phase

_UNREAD = (
    "aten.gather.default",
    "aten.take.default",
    "aten.masked_select.default",
    "aten.cummax.default",
    "aten.cummin.default",
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
