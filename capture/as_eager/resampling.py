"""Trace resampling with lengths that vary: torch's own code for it takes plain numbers only.

`F.interpolate` calls the overload `vec` of an operator, which works out the size of the result and
calls the operator proper. Here Python does that work, so that sizes stay symbolic, and says which
shape the operators return. So it does with the gradient of `F.affine_grid`, which is a product.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch._decomp.decompositions import upsample_compute_output_size
from torch._prims_common import suggest_memory_format

from remat_gen.capture.process.replaced import kept_kernels

Kernel: TypeAlias = Callable[..., torch.Tensor]
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_META = torch._C.DispatchKey.Meta
RESAMPLING = """
    upsample_nearest1d upsample_nearest2d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d
    _upsample_bilinear2d_aa _upsample_bicubic2d_aa
""".split()


@contextlib.contextmanager
def symbolic_resampling() -> Iterator[None]:
    """Give the operators Python code for symbolic sizes, and take it away again."""
    kernels = list(_kernels())
    with kept_kernels([operator for operator, _, _ in kernels]):
        for operator, key, kernel in kernels:
            operator.py_kernels[key] = kernel
        yield


def _kernels() -> Iterator[tuple[torch._ops.OpOverload, torch._C.DispatchKey, Kernel]]:
    for name in RESAMPLING:
        forward, backward = (getattr(torch.ops.aten, n) for n in (name, f"{name}_backward"))
        yield forward.vec, _COMPOSITE, _resampling(forward.default)
        yield forward.default, _META, _resized
        yield backward.default, _META, _sized_back
    yield torch.ops.aten.affine_grid_generator_backward.default, _COMPOSITE, _affine_back


def _resampling(operator: torch._ops.OpOverload) -> Kernel:
    def resample(
        x: torch.Tensor,
        output_size: list[int] | None,
        *flags_and_factors: Any,  # align_corners where the operator has it, scale_factors
    ) -> torch.Tensor:
        *flags, factors = flags_and_factors
        size: list[int] = upsample_compute_output_size(x.size(), output_size, factors)
        resampled: torch.Tensor = operator(x, size, *flags, *(factors or [None] * len(size)))
        return resampled

    return resample


def _resized(x: torch.Tensor, output_size: list[int], *_others: Any) -> torch.Tensor:
    resized = x.new_empty([*x.shape[:2], *output_size])
    return resized.to(memory_format=suggest_memory_format(x))


def _sized_back(
    gradient: torch.Tensor, _output_size: list[int], input_size: list[int], *_others: Any
) -> torch.Tensor:
    sized = gradient.new_empty(input_size)
    return sized.to(memory_format=suggest_memory_format(gradient))


def _affine_back(gradient: torch.Tensor, size: list[int], align_corners: bool) -> torch.Tensor:
    lengths = size[2:]
    rows = [_from_neg_one(gradient, n, align_corners) for n in lengths[::-1]]
    axes = [*(row.view([-1] + [1] * i) for i, row in enumerate(rows)), gradient.new_ones(1)]
    base = torch.stack([axis.expand(size[0], *lengths) for axis in axes], -1).flatten(1, -2)
    return base.transpose(1, 2).bmm(gradient.flatten(1, -2)).transpose(1, 2)


def _from_neg_one(like: torch.Tensor, steps: int, align_corners: bool) -> torch.Tensor:
    if steps <= 1:
        return like.new_zeros(1)
    found = torch.linspace(-1, 1, steps, dtype=like.dtype, device=like.device)
    return found if align_corners else found * (steps - 1) / steps
