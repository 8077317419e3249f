"""A model as FSDP2's mixed precision lets it compute, without FSDP2.

Its MixedPrecisionPolicy casts parameters where it gathers them, and the floating tensors that come
into the model and into each unit; buffers stay as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from remat_gen.capture.load.load import Loaded
from remat_gen.capture.process.copies import copied_with


def as_computed(loaded: Loaded, dtype: str) -> Loaded:
    """Return a model with its parameters in a dtype, a copy; itself where that is ""."""
    if not dtype:
        return loaded
    kind: torch.dtype = getattr(torch, dtype)
    model = copied_with(loaded.model, loaded.model)
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.grad = None
            parameter.data = parameter.data.to(kind)
    return replace(loaded, model=model)


@contextlib.contextmanager
def computing_in(model: nn.Module, units: Collection[str], dtype: str) -> Iterator[nn.Module]:
    """Let a model compute in a dtype; "" leaves it as it is. Its parameters come back as they were.

    What steps do to the parameters inside is lost, and so are their gradients.
    """
    if not dtype:
        yield model
        return
    kind: torch.dtype = getattr(torch, dtype)
    own = [(p, p.data, p.grad) for p in model.parameters() if p.is_floating_point()]
    with contextlib.ExitStack() as stack:
        for path in ("", *units):
            cast = model.get_submodule(path).register_forward_pre_hook(
                _casting(kind), with_kwargs=True, prepend=True
            )
            stack.callback(cast.remove)
        for parameter, data, _ in own:
            parameter.grad = None
            parameter.data = data.to(kind)
        try:
            yield model
        finally:
            for parameter, data, gradient in own:
                parameter.grad = None
                parameter.data = data
                parameter.grad = gradient


def _casting(kind: torch.dtype) -> Any:
    def cast(value: object) -> object:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.to(kind)
        return value

    def hook(_: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        made: tuple[Any, Any] = pytree.tree_map(cast, (args, kwargs))
        return made

    return hook
