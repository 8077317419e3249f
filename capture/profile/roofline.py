"""Estimate an operation's time where it cannot be measured: the roofline model.

An operation takes as long as its arithmetic or its memory traffic needs at the device's rates,
whichever is longer (Williams, Waterman, Patterson: "Roofline", CACM 2009), plus a launch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.profile.calls import bind, resolve
from remat_gen.capture.profile.timing import Effort, median_time_us
from remat_gen.ir.graph import Graph, Operation, Tensor, Trait, refs_in

# The counter knows these operations by their CUDA names only; the arguments begin alike.
_COUNTED_AS = {
    "_scaled_dot_product_flash_attention_for_cpu": "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu_backward": (
        "_scaled_dot_product_flash_attention_backward"
    ),
}
_PICKS_ROWS = ("aten.embedding.default", "aten.index_select.default", "aten.gather.default")


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device sustains; `launch_us` is the least time of any operation.

    `flops_per_us` holds for dtypes that `by_dtype` does not have. `drawn_per_us` are random
    numbers: a CPU draws them one after another, a GPU as fast as it writes them.
    """

    flops_per_us: float
    bytes_per_us: float
    launch_us: float
    by_dtype: Mapping[str, float] = field(default_factory=dict)
    drawn_per_us: float = math.inf


_SIDES = (512, 1024, 2048, 4096, 8192)  # of products, until one is long enough to be no launch
_LONG_US = 300.0

NOMINAL_CPU = Rates(flops_per_us=5e4, bytes_per_us=1e4, launch_us=1.0)


def roofline_us(graph: Graph, operation: Operation, rates: Rates) -> float:
    """Return the modelled time of an operation in microseconds."""
    rate = rates.by_dtype.get(product_dtype(graph, operation), rates.flops_per_us)
    arithmetic_us = flops(graph, operation) / rate
    traffic_us = moved_bytes(graph, operation) / rates.bytes_per_us
    drawing_us = drawn_numbers(graph, operation) / rates.drawn_per_us
    return rates.launch_us + max(arithmetic_us, traffic_us, drawing_us)


def product_dtype(graph: Graph, operation: Operation) -> str:
    """Return the dtype in which an operation multiplies: that of the first tensor it reads."""
    names = refs_in((operation.args, operation.kwargs))
    return next((graph.tensors[name].dtype for name in names), "")


def flops(graph: Graph, operation: Operation) -> int:
    """Return the arithmetic of a matrix product, convolution or attention; 0 for the rest."""
    packet = getattr(resolve(operation.target), "overloadpacket", None)
    name = getattr(packet, "__name__", "")
    if name in _COUNTED_AS:
        packet = getattr(torch.ops.aten, _COUNTED_AS[name])
    if packet not in flop_registry:
        return 0
    read = refs_in((operation.args, operation.kwargs))
    args, kwargs = bind(operation, _meta(graph, read))
    if "attention" in name:
        args = _for_each_head(args)
    made = _meta(graph, (o for o in operation.outputs if o))
    outputs = [made.get(o) if o else None for o in operation.outputs]
    value = outputs[0] if operation.single and outputs else outputs
    return int(flop_registry[packet](*args, **kwargs, out_val=value))


def _for_each_head(args: Sequence[Any]) -> list[Any]:
    """Repeat keys and values that heads share, as kernels do; torch 2.11 counts no others."""
    four = [t for t in args if isinstance(t, torch.Tensor) and t.ndim == 4]
    heads = max((t.shape[1] for t in four), default=1)
    return [
        t.repeat_interleave(heads // t.shape[1], dim=1)
        if isinstance(t, torch.Tensor) and t.ndim == 4 and heads % t.shape[1] == 0
        else t
        for t in args
    ]


def drawn_numbers(graph: Graph, operation: Operation) -> int:
    """Return how many random numbers an operation draws: one for each element of its result.

    Attention draws as it goes, and has its own arithmetic.
    """
    if Trait.RANDOM not in operation.traits or flops(graph, operation):
        return 0
    return max((math.prod(graph.tensors[o].shape) for o in operation.outputs if o), default=0)


def moved_bytes(graph: Graph, operation: Operation) -> int:
    """Return the bytes read and written once; an expanded tensor counts what it really holds.

    Of a table that rows are picked from, as many bytes are read as are picked.
    """

    def held(name: str) -> int:
        tensor = graph.tensors[name]
        return min(_nbytes(tensor), graph.storages[tensor.storage].nbytes)

    read = dict.fromkeys(refs_in((operation.args, operation.kwargs)))
    written = sum(held(name) for name in operation.outputs if name and name not in read)
    most = written if operation.target in _PICKS_ROWS else math.inf
    return int(sum(min(held(name), most) for name in read)) + written


@functools.cache
def measured_rates(device: torch.device, dtype: str = "float32") -> Rates:
    """Return what a device sustains on a product of `dtype` and on a copy, once measured.

    Numbers that are drawn: a GPU multiplies ones quicker. What is no product's dtype has float32's.
    """
    effort = Effort(most=20)
    for side in _SIDES:
        product_us = median_time_us(_product(dtype, side, device), device, effort)
        if product_us >= _LONG_US:
            break
    beyond = kind_of(device).beyond_caches_bytes(device)
    block = torch.ones(beyond, dtype=torch.uint8, device=device)
    copy_us = median_time_us(block.clone, device, effort)
    tiny = torch.ones(1, device=device)
    return Rates(
        flops_per_us=2 * side**3 / product_us,
        bytes_per_us=2 * block.numel() / copy_us,
        launch_us=median_time_us(lambda: tiny + tiny, device, effort),
    )


def _product(dtype: str, side: int, device: torch.device) -> Callable[[], object]:
    """Return a product of drawn numbers, in `dtype` where it is one of products."""
    generator = torch.Generator(device).manual_seed(0)
    drawn = torch.randn(side, side, device=device, generator=generator)
    kind: torch.dtype = getattr(torch, dtype, torch.float32)
    factor = drawn.to(kind) if kind.is_floating_point else drawn
    return lambda: factor @ factor


def _meta(graph: Graph, names: Iterable[str]) -> dict[str, torch.Tensor]:
    """Return tensors without bytes, of the right shapes."""
    tensors = [graph.tensors[name] for name in names]
    return {
        t.name: torch.empty_strided(t.shape, t.stride, dtype=getattr(torch, t.dtype), device="meta")
        for t in tensors
    }


def _nbytes(tensor: Tensor) -> int:
    dtype: torch.dtype = getattr(torch, tensor.dtype)
    return math.prod(tensor.shape) * dtype.itemsize
