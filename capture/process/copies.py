"""Copy tensors, values, strides and all, in memory of their own; and models."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn

T = TypeVar("T")


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a leaf with a tensor's values and strides that shares no memory with it.

    `clone` would make contiguous what has gaps or repeats: `ids[:, :-1]`, `mask.expand(…)`. A plan
    for that would refuse the tensor that it was made from.
    """
    data = tensor.detach()
    if tensor.layout is torch.strided and tensor.numel() and min(tensor.stride(), default=0) >= 0:
        steps = zip(data.shape, data.stride(), strict=True)
        extent = 1 + sum((size - 1) * stride for size, stride in steps)
        copy = data.new_empty_strided(data.shape, data.stride())
        copy.as_strided((extent,), (1,)).copy_(data.as_strided((extent,), (1,)))
    else:
        copy = data.clone()
    return copy.requires_grad_(tensor.requires_grad)


def copied_with(model: nn.Module, value: T) -> T:
    """Copy a value with the model in it, which may keep tensors that have a graph.

    Those that `torch.nn.utils.weight_norm` puts there, or a step before, torch refuses to copy.
    """
    kept = (t for module in model.modules() for t in vars(module).values())
    graphs = (t for t in kept if isinstance(t, torch.Tensor) and not t.is_leaf)
    return copy.deepcopy(value, {id(t): t.detach().clone() for t in graphs})
