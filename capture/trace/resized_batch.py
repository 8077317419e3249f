"""The example's step at another batch: its samples once more from the first on, or fewer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from remat_gen.capture.load.arguments import describe_call
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.process.isolation import UserCode
from remat_gen.ir.errors import UsageError


def batch_of(loaded: Loaded) -> int:
    """Return the batch of a model's example: the length that all its tensors begin with.

    Raises:
        UsageError: they do not.
    """
    shapes = {path: tuple(leaf.shape) for path, leaf in _tensors(loaded).items()}
    sizes = {shape[0] for shape in shapes.values() if shape}
    if len(sizes) != 1:
        listed = ", ".join(f"{path} {list(shape)}" for path, shape in shapes.items()) or "none"
        raise UsageError(
            f"{loaded.path}: the example has no batch to change: its tensors must all begin with "
            f"the same length, and are {listed}"
        )
    return int(sizes.pop())


def batched_inputs(loaded: Loaded) -> frozenset[str]:
    """Return the paths of the example's tensors that have the batch: those of a dimension."""
    return frozenset(path for path, leaf in _tensors(loaded).items() if leaf.ndim)


def at_batch(loaded: Loaded, batch: int) -> Loaded:
    """Return a loaded model whose example has another batch.

    Raises:
        UsageError: the example has no batch, or one so large does not fit into memory.
    """
    if batch == batch_of(loaded):
        return loaded
    example = loaded.args, loaded.kwargs
    with UserCode(loaded.path, f"making an example of a batch of {batch:,}"):  # it may not fit
        args, kwargs = pytree.tree_map(lambda leaf: _resized(leaf, batch), example)
    return replace(loaded, args=args, kwargs=kwargs)


def _tensors(loaded: Loaded) -> Mapping[str, torch.Tensor]:
    leaves = describe_call(loaded.model, loaded.args, loaded.kwargs).leaves
    return {leaf.path: leaf.value for leaf in leaves if isinstance(leaf.value, torch.Tensor)}


def _resized(leaf: Any, batch: int) -> Any:
    return resized(leaf, batch) if isinstance(leaf, torch.Tensor) and leaf.ndim else leaf


def resized(tensor: torch.Tensor, batch: int) -> torch.Tensor:
    """Return a tensor of another first length, its dimensions laid out in the same order."""
    strides = tensor.stride()
    order = sorted(range(tensor.ndim), key=lambda dim: -strides[dim])
    rows = torch.arange(batch, device=tensor.device) % tensor.shape[0]
    inner = tensor.detach().permute(order).index_select(order.index(0), rows)
    found = inner.permute([order.index(dim) for dim in range(tensor.ndim)])
    return found.requires_grad_(tensor.requires_grad)
