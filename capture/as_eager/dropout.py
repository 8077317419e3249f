"""Dropout as eager runs it on the CPU, with a mask of booleans.

torch traces `native_dropout`, the fused kernel of GPUs. On the CPU that differs from eager in the
last bit for some probabilities (0.15 is one) and multiplies by booleans, which is many times slower
than by floats. Eager multiplies by a mask of floats, 0 or 1 / (1 - p). Here the same draws make a
mask of booleans, a quarter of the bytes to retain, and one cheap operation makes the floats of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decompositions

from remat_gen.capture.as_eager.draws import draw_mask
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.process.replaced import replaced

_library: Any = torch.library.Library("remat", "DEF")
_library.define(
    "dropout_mask(SymInt[] size, SymInt[] stride, float keep, *, Device? device=None) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)
_library.define("dropout_scale(Tensor mask, float keep, ScalarType dtype) -> Tensor")


def dropout_mask(
    size: Sequence[int],
    stride: Sequence[int],
    keep: float,
    device: torch.device | None = None,
) -> Tensor:
    """Draw which elements stay, each with probability `keep`; laid out as eager's mask is."""
    laid_out = torch.empty_strided(size, stride, device="meta")
    if laid_out.is_contiguous() and torch.empty(0, device=device).is_cpu:
        return draw_mask(tuple(size), keep)
    return _empty_mask(size, stride, keep, device).bernoulli_(keep)


def _empty_mask(
    size: Sequence[int],
    stride: Sequence[int],
    _keep: float,
    device: torch.device | None = None,
) -> Tensor:
    return torch.empty_strided(size, stride, dtype=torch.bool, device=device)


def dropout_scale(mask: Tensor, keep: float, dtype: torch.dtype) -> Tensor:
    """Return eager's mask: 1 / keep, rounded as eager rounds it, where an element stays.

    Bytes become floats in an eighth of the time that torch takes for booleans on the CPU.
    """
    return mask.view(torch.uint8).to(dtype).div_(keep)


_library.impl("dropout_mask", dropout_mask, "BackendSelect")
torch.library.register_fake("remat::dropout_mask", _empty_mask, lib=_library)
_library.impl("dropout_scale", dropout_scale, "CompositeExplicitAutograd")


def dropout(x: Tensor, p: float, train: bool) -> Tensor:
    """Trace what `torch.dropout` runs on the device of `x`."""
    if not _drops(x, p, train):
        return x
    if kind_of(x.device).has_fused_dropout and p < 1:
        return torch.native_dropout(x, p, train)[0]
    return x * _scale(x, p)


def dropout_of_gpu(x: Tensor, p: float, train: bool) -> Tensor:
    """Trace what `torch.dropout` runs on a GPU, whatever device `x` is on to stand for one."""
    if not _drops(x, p, train):
        return x
    return torch.native_dropout(x, p, train)[0] if p < 1 else x * _scale(x, p)


def dropout_(x: Tensor, p: float, train: bool) -> Tensor:
    """Trace what `torch.dropout_` runs: no device has a fused kernel for it."""
    return x.mul_(_scale(x, p)) if _drops(x, p, train) else x


def _drops(x: Tensor, p: float, train: bool) -> bool:
    return train and p != 0 and x.numel() != 0


def _scale(x: Tensor, p: float) -> Tensor:
    if p == 1:
        return torch.zeros((), dtype=x.dtype, device=x.device)
    stride = torch.empty_like(x).stride()
    mask = torch.ops.remat.dropout_mask(x.shape, stride, 1 - p, device=x.device)
    scale: Tensor = torch.ops.remat.dropout_scale(mask, 1 - p, x.dtype)
    return scale


@contextlib.contextmanager
def dropout_of_rnns() -> Iterator[None]:
    """Drop between the layers of an RNN, as eager does: what torch takes it apart into never drops.

    Its `_rnn_helper` asks for `num_layers < i - 1`, which is never so. It is called for each layer.
    """
    one: Callable[..., tuple[Tensor, list[Any]]] = decompositions._rnn_helper

    def layers(
        x: Tensor,
        states: Sequence[Any],
        weights: Sequence[Any],
        biases: bool,
        count: int,
        p: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
        run: Callable[..., Any],
    ) -> tuple[Tensor, list[Any]]:
        directions, ends = 2 if bidirectional else 1, []
        x = x.transpose(0, 1) if batch_first else x
        for i in range(0, count * directions, directions):
            x = torch.dropout(x, p, train) if i else x
            own = states[i : i + directions], weights[i : i + directions]
            x, last = one(x, *own, biases, 1, 0.0, train, bidirectional, False, run)
            ends += last
        return x.transpose(0, 1) if batch_first else x, ends

    with replaced(decompositions, "_rnn_helper", layers):
        yield
