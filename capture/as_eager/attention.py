"""Scaled dot product attention as a GPU runs it, traced on tensors that stand in for a GPU's.

Eager picks a kernel by dtype and shape (`select_sdp_backend` in
aten/src/ATen/native/transformers/cuda/sdp_utils.cpp), which torch cannot do where no GPU is. The
rules here are its own for GPUs since Ampere: cuDNN's kernel for 16 bits where the GPU prefers it,
flash attention for 16 bits without a mask, else the memory-efficient kernel, else plain arithmetic.
A plan calls a kernel by itself, where nobody asks whether eager would: what it is not made for it
refuses, or masks otherwise. Kernels that the user's code switched off are not taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.backends.cuda as enabled
import torch.nn.functional as F
from torch import Tensor

from remat_gen.capture.device.absent import HOPPER, AbsentDevice
from remat_gen.ir.graph import Graph

_EFFICIENT = "aten._scaled_dot_product_efficient_attention.default"
_HALF = (torch.float16, torch.bfloat16)
_CUDNN_HEAD = 128  # the largest head of cuDNN's kernel
_CUDNN_HEAD_ON_HOPPER = 256
_CUDNN_MULTIPLE = 8  # a head is a multiple of it
_FLASH_HEAD = 256  # the largest head that flash attention has a kernel for
_FLASH_MULTIPLE = 8  # eager pads a head to a multiple of it
_SMALL_GPU_HEAD = 192  # above it a GPU of less shared memory may lack flash attention's gradient
_SMALL_GPU_PADDED = 224  # from here on it is another kernel, which lacks no more than dropout
_EFFICIENT_BYTES = 16  # a head of the efficient kernel is a multiple of as many bytes
_EFFICIENT_SHARES = torch.__version__ >= "2.14"  # heads of keys among queries, as flash attention
_MASK_MULTIPLE = 16  # so is a row of its mask, in elements
_RAISES = 2  # of torch's deterministic modes: 1 warns


@dataclass(frozen=True, slots=True)
class _Call:
    """What attention is called with; a `mask` is added to the scores."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    dropout_p: float
    is_causal: bool
    scale: float
    enable_gqa: bool

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.query, self.key, self.value

    @property
    def learns(self) -> bool:
        return torch.is_grad_enabled() and any(t.requires_grad for t in self.tensors)

    @property
    def fits_fused(self) -> bool:
        """Tell whether all fused kernels take it: of one batch and dtype, in unbroken rows."""
        query = self.query
        alike = all(
            t.ndim == 4 and t.dtype == query.dtype and t.size(0) == query.size(0)
            for t in self.tensors
        )
        return alike and all(t.stride(-1) == 1 for t in (*self.tensors, self.mask) if t is not None)

    def heads_fit(self, shared: bool) -> bool:
        """Tell whether keys and values have a head for each query's, or for several if `shared`."""
        of_query, of_key, of_value = (t.size(1) for t in self.tensors)
        several = of_query % of_key == 0 if shared else of_query == of_key
        return several and of_key == of_value


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
    device: AbsentDevice,
) -> Tensor:
    """Trace the kernel that eager would run on a GPU; `[B, H, T, D]` each."""
    factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    mask = None if attn_mask is None else _added(attn_mask, query.dtype)
    call = _Call(query, key, value, mask, dropout_p, is_causal, factor, enable_gqa)
    if call.fits_fused:
        if _cudnn_takes(call, device):
            return _cudnn(call)
        if _flash_takes(call, device):
            return _flash(call)
        if _efficient_takes(call):
            return _efficient(call)
    found: Tensor = torch.ops.aten._scaled_dot_product_attention_math(
        query, key, value, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
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


def _cudnn_takes(call: _Call, device: AbsentDevice) -> bool:
    """Tell whether cuDNN's kernel does, and before others; it is not deterministic."""
    if not device.prefers_cudnn_attention or not enabled.cudnn_sdp_enabled():
        return False
    if torch.get_deterministic_debug_mode() == _RAISES or _learns_mask(call):
        return False
    query, key, value = call.tensors
    largest = _CUDNN_HEAD_ON_HOPPER if device.capability == HOPPER else _CUDNN_HEAD
    sizes = query.size(-1), value.size(-1)
    heads = all(size <= largest and size % _CUDNN_MULTIPLE == 0 for size in sizes)
    long = key.size(2) > 1 and (query.size(2) > 1 or not call.dropout_p)
    return query.dtype in _HALF and heads and long and call.heads_fit(call.enable_gqa)


def _cudnn(call: _Call) -> Tensor:
    rest = call.mask, call.learns, call.dropout_p, call.is_causal, False
    found: Tensor = torch.ops.aten._scaled_dot_product_cudnn_attention(
        *call.tensors, *rest, scale=call.scale
    )[0]
    return found


def _flash_takes(call: _Call, device: AbsentDevice) -> bool:
    """Tell whether flash attention does; its causal mask begins at the other end of the keys."""
    if call.mask is not None or not enabled.flash_sdp_enabled():
        return False
    query, key, value = call.tensors
    size = query.size(-1)
    same = size == key.size(-1) == value.size(-1) and size <= _FLASH_HEAD
    square = not call.is_causal or query.size(2) == key.size(2)
    if device.has_little_shared_memory and call.learns and size > _SMALL_GPU_HEAD:
        same = same and size > _SMALL_GPU_PADDED and not call.dropout_p
    return query.dtype in _HALF and same and square and call.heads_fit(call.enable_gqa)


def _flash(call: _Call) -> Tensor:
    tensors, size = call.tensors, call.query.size(-1)
    padding = -size % _FLASH_MULTIPLE
    if padding:
        query, key, value = (F.pad(t, (0, padding)) for t in tensors)
        tensors = query, key, value
    found: Tensor = torch.ops.aten._scaled_dot_product_flash_attention(
        *tensors, call.dropout_p, call.is_causal, False, scale=call.scale
    )[0]
    return found[..., :size] if padding else found


def _efficient_takes(call: _Call) -> bool:
    """Tell whether the memory-efficient kernel does."""
    dtype = call.query.dtype
    if not enabled.mem_efficient_sdp_enabled() or _learns_mask(call):
        return False
    multiple = _EFFICIENT_BYTES // dtype.itemsize
    fits = all(t.size(-1) % multiple == 0 for t in (call.query, call.value))
    shares = call.enable_gqa and _EFFICIENT_SHARES
    return dtype in (*_HALF, torch.float32) and fits and call.heads_fit(shares)


def _learns_mask(call: _Call) -> bool:
    return call.mask is not None and call.mask.requires_grad


def _efficient(call: _Call) -> Tensor:
    bias = None if call.mask is None else _bias(call.mask, call.query, call.key)
    rest = bias, call.learns, call.dropout_p, call.is_causal
    found: Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
        *call.tensors, *rest, scale=call.scale
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
