"""The tensors among what an operation gets and returns, and those that it writes into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


def tensors_in(values: object) -> list[Tensor]:
    """Return the tensors in nested containers."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]


def written_by(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return what an operator writes into, by its schema."""
    arguments = func._schema.arguments if isinstance(func, torch._ops.OpOverload) else ()
    given = {**dict(zip((a.name for a in arguments), args, strict=False)), **kwargs}
    writes = [a.name for a in arguments if a.alias_info and a.alias_info.is_write]
    return tensors_in([given.get(name) for name in writes])
