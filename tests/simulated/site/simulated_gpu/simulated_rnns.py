"""A GPU's kernels for the cells of an LSTM and a GRU, which the CPU has not; no cuDNN's layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_library: Any = torch.library.Library("aten", "IMPL")
_installed: list[bool] = []


def install() -> None:
    """Register them, once a process."""
    if not _installed:
        _installed.append(True)
        for name, kernel in _KERNELS.items():
            _library.impl(f"_thnn_fused_{name}", kernel, "CUDA")


def _sum(*terms: Tensor | None) -> Tensor:
    first, *rest = (term for term in terms if term is not None)
    for term in rest:
        first = first + term
    return first


def _lstm(
    of_x: Tensor,
    of_h: Tensor,
    cx: Tensor,
    b_x: Tensor | None = None,
    b_h: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    i, f, g, o = _sum(of_x, of_h, b_x, b_h).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def _lstm_backward(
    d_hy: Tensor | None, d_cy: Tensor | None, cx: Tensor, cy: Tensor, kept: Tensor, biases: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    i, f, g, o = kept.chunk(4, 1)
    d_hy = torch.zeros_like(cy) if d_hy is None else d_hy
    t = cy.tanh()
    d_c = _sum(d_hy * o * (1 - t * t), d_cy)
    parts = d_c * g * i * (1 - i), d_c * cx * f * (1 - f), d_c * i * (1 - g * g)
    gates = torch.cat([*parts, d_hy * t * o * (1 - o)], 1)
    return gates, d_c * f, gates.sum(0) if biases else None


def _gru(
    of_x: Tensor,
    of_h: Tensor,
    hx: Tensor,
    b_x: Tensor | None = None,
    b_h: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    (r_x, z_x, n_x), (r_h, z_h, n_h) = _sum(of_x, b_x).chunk(3, 1), _sum(of_h, b_h).chunk(3, 1)
    r, z = (r_x + r_h).sigmoid(), (z_x + z_h).sigmoid()
    n = (n_x + r * n_h).tanh()
    return (hx - n) * z + n, torch.cat([r, z, n, hx, n_h], 1)


def _gru_backward(
    d_hy: Tensor, kept: Tensor, biases: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    r, z, n, hx, n_h = kept.chunk(5, 1)
    d_n = d_hy * (1 - z) * (1 - n * n)
    d_z, d_r = d_hy * (hx - n) * z * (1 - z), d_n * n_h * r * (1 - r)
    of_x, of_h = torch.cat([d_r, d_z, d_n], 1), torch.cat([d_r, d_z, d_n * r], 1)
    sums = (of_x.sum(0), of_h.sum(0)) if biases else (None, None)
    return of_x, of_h, d_hy * z, *sums


_KERNELS = {
    "lstm_cell": _lstm,
    "lstm_cell_backward_impl": _lstm_backward,
    "gru_cell": _gru,
    "gru_cell_backward": _gru_backward,
}
