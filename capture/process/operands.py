"""The tensors among what an operation gets and returns, those that it writes into; their memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree


def tensors_in(values: object) -> list[Tensor]:
    """Return the tensors in nested containers."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]


def written_by(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return what an operator writes into, by its schema."""
    if not isinstance(func, torch._ops.OpOverload) or not func._schema.is_mutable:
        return []
    arguments = func._schema.arguments
    given = {**dict(zip((a.name for a in arguments), args, strict=False)), **kwargs}
    writes = [a.name for a in arguments if a.alias_info and a.alias_info.is_write]
    return tensors_in([given.get(name) for name in writes])


def storage_of(value: object) -> int | None:
    """Return the identity of a tensor's memory; a sparse one has none of its own."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return None
    identity: int = value.untyped_storage()._cdata
    return identity


def is_bitwise_equal(a: Tensor, b: Tensor) -> bool:
    """Tell whether two tensors of one shape and dtype hold the same bits (nan equals nan)."""
    return torch.equal(_bits(a), _bits(b))


def _bits(tensor: Tensor) -> Tensor:
    data = tensor.detach().resolve_conj().resolve_neg()
    return data.contiguous().view(-1).view(torch.uint8)


def lack_values(tensors: Iterable[object]) -> bool:
    """Tell whether one of these is a tensor without values, as of a model for another device."""
    return any(isinstance(tensor, FakeTensor) for tensor in tensors)
