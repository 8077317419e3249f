"""cuDNN's BatchNorm for the simulated GPU, of which torch's CPU build has none.

It rounds apart from PyTorch's own, gives wrong gradients for a reserve that forward did not make,
and counts how often running statistics were updated. Eager chooses it as torch does
(`_select_batch_norm_backend` in aten/src/ATen/native/Normalization.cpp).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

RESERVE = 200
updates: list[int] = []
_library: Any = torch.library.Library("aten", "IMPL")


def _moments(x: Tensor) -> tuple[Tensor, Tensor, list[int]]:
    dims = [d for d in range(x.ndim) if d != 1]
    return x.double().mean(dims), x.double().var(dims, unbiased=False), dims


def _along(x: Tensor, channels: Tensor) -> Tensor:
    return channels.view(1, -1, *[1] * (x.ndim - 2))


def _laid_out(x: Tensor, value: Tensor) -> Tensor:
    return torch.empty_like(x, device=x.device).copy_(value)


def _forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    assert training and bias is not None and (mean is None) == (var is None)
    assert weight.dtype is torch.float32 and x.dtype in (torch.float32, torch.float16)
    center, spread, _ = _moments(x)
    invstd = (spread + eps).rsqrt()
    if mean is not None and var is not None:
        count = x.numel() // x.size(1)
        mean.mul_(1 - momentum).add_((momentum * center).float())
        var.mul_(1 - momentum).add_((momentum * spread * count / (count - 1)).float())
        updates.append(1)
    scaled = (x.double() - _along(x, center)) * _along(x, invstd * weight.double())
    made = _laid_out(x, scaled + _along(x, bias.double()))
    reserve = torch.full((RESERVE,), 7, dtype=torch.uint8, device=x.device)
    return made, center.float(), invstd.float(), reserve


def _backward(
    x: Tensor,
    grad: Tensor,
    weight: Tensor,
    _mean: Tensor | None,
    _var: Tensor | None,
    center: Tensor,
    invstd: Tensor,
    eps: float,
    reserve: Tensor,
) -> tuple[Tensor, ...]:
    assert reserve.shape == (RESERVE,)
    assert grad.stride() == x.stride()
    dims = [d for d in range(x.ndim) if d != 1]
    wide, g = x.double(), grad.double()
    normed = (wide - _along(x, center.double())) * _along(x, invstd.double())
    d_weight, d_bias = (g * normed).sum(dims), g.sum(dims)
    count = x.numel() // x.size(1)
    inner = g - _along(x, d_bias / count) - normed * _along(x, d_weight / count)
    right = reserve.double().mean() / 7  # 1, if it is what forward left
    d_x = inner * _along(x, invstd.double() * weight.double()) * right
    return _laid_out(x, d_x), d_weight.float(), d_bias.float()


def install(monkeypatch: Any) -> None:
    """Let eager, and a trace, choose cuDNN's BatchNorm where torch's CUDA build does."""
    if not updates:
        _library.impl("cudnn_batch_norm", _forward, "CUDA")
        _library.impl("cudnn_batch_norm_backward", _backward, "CUDA")
        updates.append(0)
    plain = torch.batch_norm

    def chosen(
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor | None,
        var: Tensor | None,
        training: bool,
        momentum: float,
        eps: float,
        cudnn_enabled: bool,
    ) -> Tensor:
        mixed = x.dtype is torch.float16 and weight is not None and weight.dtype is torch.float32
        if (
            x.is_cuda
            and torch.backends.cudnn.enabled
            and training
            and (x.dtype is torch.float32 or mixed)
        ):
            ours: Any = torch.ops.aten.cudnn_batch_norm
            made: Tensor = ours(x, weight, bias, mean, var, training, momentum, eps)[0]
            return made
        return plain(x, weight, bias, mean, var, training, momentum, eps, cudnn_enabled)

    monkeypatch.setattr(torch, "batch_norm", chosen)
    monkeypatch.setattr(
        torch._C, "_get_cudnn_batch_norm_reserve_space_size", lambda *_: RESERVE, raising=False
    )
