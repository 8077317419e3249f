"""Does a forward compute in torch's default dtype? It may be another one in a later process."""

from __future__ import annotations

import torch

from remat_gen.ir.graph import Graph, Operation, Phase, refs_in

DEFAULT_DTYPE = "torch:get_default_dtype()"  # as what forward asks about the process
_NUMBERS = frozenset({"remat.constant", "aten.scalar_tensor.default"})  # of Python, their dtype set
_GIVEN = frozenset({"aten._to_copy.default", "remat.dropout_scale.default"})  # one, by forward


def takes_default_dtype(graph: Graph) -> bool:
    """Tell whether an operation makes floats of none: factories, Python's numbers, integers."""
    forward = (o for o in graph.operations if o.phase is Phase.FORWARD)
    return any(_takes_it(graph, operation) for operation in forward)


def _takes_it(graph: Graph, operation: Operation) -> bool:
    if operation.target in _GIVEN:
        return False
    given = dict(operation.kwargs)
    if given.get("dtype") is not None and operation.target not in _NUMBERS:
        return False
    read = refs_in((operation.args, operation.kwargs))
    reads = any(_is_floating(graph, name) for name in read)
    return not reads and any(_is_floating(graph, name) for name in operation.outputs if name)


def _is_floating(graph: Graph, name: str) -> bool:
    dtype: torch.dtype = getattr(torch, graph.tensors[name].dtype)
    return dtype.is_floating_point or dtype.is_complex
