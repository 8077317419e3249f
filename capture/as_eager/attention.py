"""Scaled dot product attention as a GPU runs it, traced on tensors that stand in for a GPU's.

Eager picks a kernel by dtype and shape (`select_sdp_backend` in
aten/src/ATen/native/transformers/cuda/sdp_utils.cpp), which torch cannot do where no GPU is. The
rules here are those that hold on every GPU since Ampere: flash attention for 16 bits without a
mask, else the memory-efficient kernel, else plain arithmetic. A plan calls a kernel by itself,
where nobody asks whether eager would: what it is not made for it refuses, or masks otherwise.
cuDNN's kernel, which eager prefers on Hopper where cuDNN is new enough, is not planned for:
whether it is depends on the machine.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from remat_gen.ir.graph import Graph

_EFFICIENT = "aten._scaled_dot_product_efficient_attention.default"
_HALF = (torch.float16, torch.bfloat16)
_FLASH_HEAD = 256  # the largest head that flash attention has a kernel for
_FLASH_MULTIPLE = 8  # eager pads a head to a multiple of it
_EFFICIENT_BYTES = 16  # a head of the efficient kernel is a multiple of as many bytes
_EFFICIENT_SHARES = torch.__version__ >= "2.14"  # heads of keys among queries, as flash attention
_MASK_MULTIPLE = 16  # so is a row of its mask, in elements


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Trace the kernel that eager would run on a GPU; `[B, H, T, D]` each."""
    factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    tensors = (query, key, value)
    fused = _fused_take(*tensors, attn_mask)
    if fused and attn_mask is None and _flash_takes(*tensors, is_causal, enable_gqa):
        return _flash(*tensors, dropout_p, is_causal, factor)
    if attn_mask is not None:
        attn_mask = _added(attn_mask, query.dtype)
    if fused and _efficient_takes(*tensors, attn_mask, enable_gqa):
        return _efficient(*tensors, attn_mask, dropout_p, is_causal, factor)
    found: Tensor = torch.ops.aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]
    return found


def seeds_on_host(graph: Graph) -> Graph:
    """Return a graph that says where the efficient kernel's seed and offset are: on the CPU.

    Fake tensors say that they are on the GPU. Its backward reads them on the host
    (`_efficient_attention_backward` in aten/src/ATen/native/transformers/cuda): another place would
    end the process.
    """
    seeds = {
        name
        for operation in graph.operations
        if operation.target == _EFFICIENT
        for name in operation.outputs[2:]
        if name
    }
    if not seeds:
        return graph
    tensors = {n: replace(t, device="cpu") if n in seeds else t for n, t in graph.tensors.items()}
    return replace(graph, tensors=tensors)


def _fused_take(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Tell whether all fused kernels take tensors: of one batch and dtype, in unbroken rows."""
    tensors = (query, key, value)
    alike = all(
        t.ndim == 4 and t.dtype == query.dtype and t.size(0) == query.size(0) for t in tensors
    )
    return alike and all(t.stride(-1) == 1 for t in (*tensors, mask) if t is not None)


def _flash_takes(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool, enable_gqa: bool
) -> bool:
    """Tell whether flash attention does; its causal mask begins at the other end of the keys."""
    same = query.size(-1) == key.size(-1) == value.size(-1)
    square = not is_causal or query.size(2) == key.size(2)
    fits = same and square and query.dtype in _HALF and query.size(-1) <= _FLASH_HEAD
    return fits and _heads_fit(query, key, value, enable_gqa)


def _heads_fit(query: Tensor, key: Tensor, value: Tensor, shared: bool) -> bool:
    several = query.size(1) % key.size(1) == 0 if shared else query.size(1) == key.size(1)
    return several and key.size(1) == value.size(1)


def _flash(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float, is_causal: bool, scale: float
) -> Tensor:
    size = query.size(-1)
    padding = -size % _FLASH_MULTIPLE
    if padding:
        query, key, value = (F.pad(t, (0, padding)) for t in (query, key, value))
    found: Tensor = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, dropout_p, is_causal, False, scale=scale
    )[0]
    return found[..., :size] if padding else found


def _efficient_takes(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, enable_gqa: bool
) -> bool:
    """Tell whether the memory-efficient kernel does."""
    if query.dtype not in (*_HALF, torch.float32) or (mask is not None and mask.requires_grad):
        return False
    multiple = _EFFICIENT_BYTES // query.dtype.itemsize
    fits = query.size(-1) % multiple == 0 and value.size(-1) % multiple == 0
    return fits and _heads_fit(query, key, value, enable_gqa and _EFFICIENT_SHARES)


def _efficient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float,
) -> Tensor:
    bias = None if mask is None else _bias(mask, query, key)
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    found: Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, bias, learns, dropout_p, is_causal, scale=scale
    )[0]
    return found


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what a mask adds to the scores: nothing, or minus infinity where it is False."""
    if mask.dtype is torch.bool:
        nothing, all_of_it = (
            torch.scalar_tensor(number, dtype=dtype, device=mask.device)
            for number in (0.0, -math.inf)
        )
        return torch.where(mask, nothing, all_of_it)
    return mask.to(dtype)


def _bias(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Return a mask of every head, with aligned rows."""
    columns = key.size(2)
    padding = -columns % _MASK_MULTIPLE
    if padding:
        mask = F.pad(mask, (0, padding))[..., :columns]
    return mask.expand(query.size(0), query.size(1), query.size(2), columns)
