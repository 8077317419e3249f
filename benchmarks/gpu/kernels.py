"""Facts about kernels for `probe.py`: what repeats itself, what draws alike, how norms compare."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from remat_gen.capture.profile.timing import Effort, median_time_us

aten = torch.ops.aten
_NORMS = ((64, 112), (256, 56), (512, 28), (2048, 7))  # channels and sides, as in a ResNet-50


def repeats(device: torch.device) -> dict[str, bool]:
    """Say which backward kernels give the same bits twice."""
    ids = torch.randint(1000, (4096,), device=device)
    grad = torch.randn(4096, 64, device=device)
    image = torch.randn(8, 16, 32, 32, device=device)
    wide = torch.randn(8, 16, 64, 64, device=device)
    weight = torch.randn(16, 16, 3, 3, device=device, requires_grad=True)
    q = torch.randn(2, 4, 256, 64, device=device, dtype=torch.bfloat16, requires_grad=True)

    def attention() -> Tensor:
        made = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        return torch.autograd.grad(made.float().square().sum(), q)[0]

    def convolution() -> Tensor:
        made = F.conv2d(image, weight, padding=1).square().sum()
        return torch.autograd.grad(made, weight)[0]

    calls: dict[str, Callable[[], Tensor]] = {
        "embedding": lambda: aten.embedding_dense_backward(grad, ids, 1000, -1, False),
        "index_add": lambda: torch.zeros(1000, 64, device=device).index_add_(0, ids, grad),
        "bilinear": lambda: aten.upsample_bilinear2d_backward(
            wide, [64, 64], [8, 16, 32, 32], False
        ),
        "attention": attention,
        "convolution": convolution,
    }
    return {name: torch.equal(call(), call()) for name, call in calls.items()}


def same_masks(device: torch.device) -> dict[str, bool]:
    """Say whether dropout draws the same mask in other memory, and in memory aligned otherwise."""
    x = torch.randn((1 << 16) + 1, device=device)
    state = torch.cuda.get_rng_state()

    def mask(of: Tensor) -> Tensor:
        torch.cuda.set_rng_state(state)
        return aten.native_dropout(of, 0.3, True)[1]

    first = mask(x[:-1])
    return {
        "other memory": torch.equal(first, mask(x[:-1].clone())),
        "misaligned": torch.equal(first, mask(x[1:])),
    }


def norms(device: torch.device, *, small: bool) -> dict[str, list[float]]:
    """Return BatchNorm's time, cuDNN's and torch's own, and cuDNN's reserve, by layout."""
    found = {}
    batch, cases = (2, ((4, 8),)) if small else (64, _NORMS)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for layout in (torch.contiguous_format, torch.channels_last):
            for channels, side in cases:
                x = torch.randn(batch, channels, side, side, device=device, dtype=dtype)
                x = x.to(memory_format=layout).requires_grad_()
                name = f"{str(dtype)[6:]} {str(layout)[6:]} {channels} x {side}"
                found[name] = [_norm_us(x, cudnn=cudnn) for cudnn in (True, False)]
                found[name].append(_reserve_bytes(x.detach()))
    return found


def _norm_us(x: Tensor, *, cudnn: bool) -> float:
    weight, bias, mean, var = (torch.ones(x.shape[1], device=x.device) for _ in range(4))
    grad = torch.randn_like(x)

    def step() -> None:
        y = torch.batch_norm(x, weight, bias, mean, var, True, 0.1, 1e-5, cudnn)
        torch.autograd.grad(y, x, grad)

    with _cudnn(cudnn):
        return round(median_time_us(step, x.device, Effort(most=8)), 2)


def _cudnn(enabled: bool) -> contextlib.AbstractContextManager[object]:
    """Choose the kernel: since torch 2.11 or before, `batch_norm` disregards its own argument."""
    has = torch.backends.cudnn.is_available()
    return torch.backends.cudnn.flags(enabled=enabled) if has else contextlib.nullcontext()


def _reserve_bytes(x: Tensor) -> int:
    """Return what cuDNN's forward keeps for its backward; -1 where torch has no cuDNN."""
    if not torch.backends.cudnn.is_available():
        return -1
    return int(torch._C._get_cudnn_batch_norm_reserve_space_size(x, True))
