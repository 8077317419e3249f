"""The statistics that BatchNorm saves for backward: torch's fake tensors tell their dtype wrongly.

`native_batch_norm_helper` in torch/_decomp/decompositions.py gives them the input's dtype on the
CPU. The kernels save float32 for an input in 16 bits: on a GPU always, on the CPU where the weight
is float32, as under autocast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from remat_gen.ir.graph import Graph, Operation, Ref

_BATCH_NORM = "aten._native_batch_norm_legit_functional.default"
_HALF = ("float16", "bfloat16")
_FLOAT_BYTES = 4


def with_saved_statistics(graph: Graph) -> Graph:
    """Return a graph whose BatchNorms save their statistics in the dtype that they do."""
    wrong = {
        name
        for operation in graph.operations
        if operation.target == _BATCH_NORM and _saves_float32(graph, operation)
        for name in _statistics(graph, operation)
    }
    if not wrong:
        return graph
    stored = {graph.tensors[name].storage: graph.tensors[name].shape[0] for name in wrong}
    return replace(
        graph,
        tensors={
            n: replace(t, dtype="float32") if n in wrong else t for n, t in graph.tensors.items()
        },
        storages={
            n: replace(s, nbytes=_FLOAT_BYTES * stored[n]) if n in stored else s
            for n, s in graph.storages.items()
        },
    )


def _saves_float32(graph: Graph, operation: Operation) -> bool:
    x, weight = operation.args[:2]
    assert isinstance(x, Ref)  # there is no BatchNorm of nothing
    tensor = graph.tensors[x.name]
    mixed = isinstance(weight, Ref) and graph.tensors[weight.name].dtype == "float32"
    return tensor.dtype in _HALF and (mixed or tensor.device.startswith("cuda"))


def _statistics(graph: Graph, operation: Operation) -> Iterator[str]:
    """Yield the saved mean and the inverse of the deviation, where they are said in 16 bits."""
    for name in operation.outputs[1:3]:
        if name and graph.tensors[name].dtype in _HALF:
            yield name
