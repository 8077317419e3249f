"""Strides of a view in another shape as torch's own: those of dimensions of length 1 count, too.

Fake tensors have others there, and by them a matrix product is handed to BLAS as another one
(transposed, or as a matrix and a vector), whose sums round apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Length: TypeAlias = "int | torch.SymInt"
VIEWS = frozenset({torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default})


def with_strides_of_views(result: Tensor, viewed: Tensor) -> Tensor:
    """Return a fake view with the strides that torch gives it; all lengths have examples."""
    if not any(_hint(size) == 1 for size in result.shape):
        return result
    strides = view_strides(viewed.shape, viewed.stride(), result.shape)
    if strides is None or [*map(_hint, strides)] == [*map(_hint, result.stride())]:
        return result
    return result.as_strided(result.shape, strides, result.storage_offset())


def view_strides(
    old: Sequence[Length], steps: Sequence[Length], new: Sequence[Length]
) -> list[Length] | None:
    """Return the strides of a view, None where it is none: `computeStride` in ATen/TensorUtils.cpp.

    From the last dimension on, each run of old ones that lie in one piece is divided among new
    ones. Lengths may be symbols, which are compared by their examples.
    """
    if not old or any(_hint(size) == 0 for size in old):
        return None
    strides: list[Length] = [0] * len(new)
    at, step = len(new) - 1, steps[-1]
    held: Length = 1  # elements of the run
    for dim in reversed(range(len(old))):
        held = held * old[dim]
        apart = _hint(old[dim - 1]) != 1 and _hint(steps[dim - 1]) != _hint(held) * _hint(step)
        if dim > 0 and not apart:
            continue
        given: Length = 1
        while at >= 0 and (_hint(given) < _hint(held) or _hint(new[at]) == 1):
            strides[at] = given * step
            given = given * new[at]
            at -= 1
        if _hint(given) != _hint(held):
            return None
        if dim > 0:
            held, step = 1, steps[dim - 1]
    return strides if at < 0 else None


def _hint(length: Length) -> int:
    return int(length.node.hint) if isinstance(length, torch.SymInt) else length
