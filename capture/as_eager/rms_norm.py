"""RMSNorm as a GPU runs it, traced on tensors that stand in for a GPU's.

It is one kernel there, which keeps one number of each row for backward. A CPU has none and runs a
dozen operations. When eager calls it, `rms_norm_symint` in aten/src/ATen/native/layer_norm.cpp
says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

aten = torch.ops.aten
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_OF_IMAGES = (torch.channels_last, torch.channels_last_3d)


def rms_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Trace what eager would run on a GPU."""
    mixed = weight is not None and weight.dtype != x.dtype
    if mixed or x.is_complex() or suggest_memory_format(x) in _OF_IMAGES:
        return arithmetic(x, normalized_shape, weight, eps)[0]
    fused: Callable[..., Tensor] = _Fused.apply
    return fused(x, normalized_shape, weight, eps)


def arithmetic(*args: Any) -> tuple[Tensor, Tensor]:
    """Run `_fused_rms_norm` as a CPU does."""
    found: tuple[Tensor, Tensor] = aten._fused_rms_norm.default._op_dk(_COMPOSITE, *args)
    return found


def kept(*_: Any) -> Any:
    """Refuse to take `_fused_rms_norm` apart."""
    return NotImplemented


class _Fused(torch.autograd.Function):
    """The kernel and its backward, which torch has for a GPU alone."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        normalized_shape: Sequence[int],
        weight: Tensor | None,
        eps: float | None,
    ) -> Tensor:
        normed: Tensor
        with torch._C._AutoDispatchBelowAutograd():
            normed, rstd = aten._fused_rms_norm.default(x, normalized_shape, weight, eps)
        ctx.normalized_shape = normalized_shape
        ctx.save_for_backward(x, weight, rstd)
        return normed

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        x, weight, rstd = ctx.saved_tensors
        wanted = [ctx.needs_input_grad[0], ctx.needs_input_grad[2]]
        d_x, d_weight = aten._fused_rms_norm_backward.default(
            grad, x, ctx.normalized_shape, rstd, weight, wanted
        )
        return d_x, None, d_weight, None
