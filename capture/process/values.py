"""Whether tensors have values."""

from __future__ import annotations

from collections.abc import Iterable

from torch._subclasses.fake_tensor import FakeTensor


def lack_values(tensors: Iterable[object]) -> bool:
    """Tell whether one of these is a tensor without values, as of a model for another device."""
    return any(isinstance(tensor, FakeTensor) for tensor in tensors)
