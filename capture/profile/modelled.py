"""Costs of a device that is not here: the roofline's times, and the workspace that is known.

What an operation allocates inside is its kernel's secret; only for fused attention is it in the
published source. Elsewhere 0 stands, so that a modelled peak may be exceeded by the workspace of a
convolution, a reduction or a mask (at most the bytes of the mask).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from remat_gen.capture.profile.roofline import roofline_us
from remat_gen.capture.profile.targets import Hardware
from remat_gen.capture.profile.timing import round_time_us
from remat_gen.ir.costs import Cost, Costs
from remat_gen.ir.graph import Graph, Operation, Ref, Tensor

_FUSED_BACKWARDS = frozenset(
    f"aten._scaled_dot_product_{kernel}_attention_backward.default" for kernel in ("flash", "cudnn")
)
_FLOAT_BYTES = 4
_ROWS = 128  # flash attention works on whole blocks of the sequence
_COLUMNS = 32  # and on heads whose size is a multiple of this


def modelled_costs(graph: Graph, target: Hardware) -> Costs:
    """Return what every operation would cost on a device; all are marked `modelled`."""
    costs = {
        operation.name: Cost(
            time_us=round_time_us(roofline_us(graph, operation, target.rates)),
            workspace_bytes=workspace_bytes(graph, operation),
            modelled=True,
        )
        for operation in graph.operations
    }
    return Costs(target.name, costs, target.alignment_bytes)


def workspace_bytes(graph: Graph, operation: Operation) -> int:
    """Return what an operation allocates inside, where that is published.

    Flash attention's backward (aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp,
    `mha_bwd`) adds up the gradient of the queries in float32, and holds a float32 per row; where
    heads share keys and values, it makes the gradient of these for every head first. cuDNN's says
    no more than that it has a workspace: taken to be the same, for the same algorithm.
    """
    if operation.target not in _FUSED_BACKWARDS:
        return 0
    _, query, key, value = _tensors(graph, operation, 4)
    batch, heads, rows, size = query.shape
    rows, size = _up(rows, _ROWS), _up(size, _COLUMNS)
    sums = _FLOAT_BYTES * batch * heads * rows * (size + 1)
    shared = (key, value) if key.shape[1] != heads else ()
    expanded = sum(math.prod(t.shape) // t.shape[1] * heads * _itemsize(t) for t in shared)
    return sums + expanded


def _tensors(graph: Graph, operation: Operation, count: int) -> Iterator[Tensor]:
    for argument in operation.args[:count]:
        assert isinstance(argument, Ref)  # gradient, queries, keys and values are no options
        yield graph.tensors[argument.name]


def _itemsize(tensor: Tensor) -> int:
    return {"float16": 2, "bfloat16": 2}.get(tensor.dtype, _FLOAT_BYTES)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
