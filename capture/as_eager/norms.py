"""What norms save for backward and return from it: torch's fake tensors tell its dtype wrongly.

Fake tensors on the CPU give saved statistics the input's dtype (`native_batch_norm_helper` and
others in torch/_decomp/decompositions.py). The kernels save float32 for an input in 16 bits:
everywhere where the weight or a running statistic is float32, as under autocast, and on a GPU
always, but for GroupNorm.
GroupNorm's gradient has the input's dtype, of which fake tensors say the weight's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import torch

from remat_gen.capture.device.kinds import kind_of
from remat_gen.ir.graph import Graph, Operation, Ref

_BATCH_NORM = "aten._native_batch_norm_legit_functional.default"
_BATCH_NORM_RETURNING = "aten._batch_norm_with_update_functional.default"
_LAYER_NORM = "aten.native_layer_norm.default"
_GROUP_NORM = "aten.native_group_norm.default"
_GROUP_NORM_BACKWARD = "aten.native_group_norm_backward.default"
_NO_STATS = "aten._native_batch_norm_legit.no_stats"
# which arguments make an operator mixed: weight, bias, and running statistics
_MIXED = {
    _BATCH_NORM: slice(1, 5),
    _BATCH_NORM_RETURNING: slice(1, 5),
    _NO_STATS: slice(1, 3),
    _LAYER_NORM: slice(2, 4),
    _GROUP_NORM: slice(1, 3),
}
_FLOAT_ON_GPU = (_BATCH_NORM, _BATCH_NORM_RETURNING, _NO_STATS, _LAYER_NORM)
_HALF = ("float16", "bfloat16")


def with_dtypes_of_norms(graph: Graph) -> Graph:
    """Return a graph whose norms save and return tensors in the dtype that they do."""
    right = {name: dtype for o in graph.operations for name, dtype in _dtypes(graph, o)}
    made = [(graph.tensors[name], dtype) for name, dtype in right.items()]
    wrong = {tensor.storage: (tensor, dtype) for tensor, dtype in made if tensor.dtype != dtype}
    if not wrong:
        return graph
    storages = dict(graph.storages)
    for name, (tensor, dtype) in wrong.items():
        nbytes = prod(tensor.shape) * getattr(torch, dtype).itemsize
        storages[name] = replace(storages[name], nbytes=nbytes)
    tensors = {  # with what views them
        name: replace(t, dtype=wrong[t.storage][1]) if t.storage in wrong else t
        for name, t in graph.tensors.items()
    }
    return replace(graph, tensors=tensors, storages=storages)


def _dtypes(graph: Graph, operation: Operation) -> Iterator[tuple[str, str]]:
    """Yield results of an operation with the dtype that they have."""
    if operation.target in _MIXED and _saves_float32(graph, operation):
        for name in operation.outputs[1:3]:
            if name:
                yield name, "float32"
    if operation.target == _GROUP_NORM_BACKWARD and operation.outputs[0]:
        x = operation.args[1]
        assert isinstance(x, Ref)
        yield operation.outputs[0], graph.tensors[x.name].dtype


def _saves_float32(graph: Graph, operation: Operation) -> bool:
    x, others = operation.args[0], operation.args[_MIXED[operation.target]]
    assert isinstance(x, Ref)  # there is no norm of nothing
    tensor = graph.tensors[x.name]
    mixed = any(isinstance(o, Ref) and graph.tensors[o.name].dtype == "float32" for o in others)
    always = kind_of(tensor.device).has_float_statistics and operation.target in _FLOAT_ON_GPU
    return tensor.dtype in _HALF and (mixed or always)
