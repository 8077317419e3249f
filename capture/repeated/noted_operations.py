"""What a forward does on fake tensors, as a list that tells one run from another.

Beside each operation stand its numbers and where its tensors come from: which operation made them,
or under which name the model has them; whether they require grad, and by which node of autograd.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True, slots=True)
class Made:
    """A tensor that an operation made: its position in the list, and among the results."""

    operation: int
    result: int


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor of the model, by its name."""

    name: str


Origin: TypeAlias = "Made | Held | int"  # or the number of an argument, in order of their use


@dataclass(frozen=True, slots=True)
class Noted:
    """An operation: what it is called with, and where its tensors come from."""

    operator: str
    said: tuple[object, ...]
    origins: tuple[Origin, ...]
    require_grad: tuple[bool, ...]  # each of them


class Notes(TorchDispatchMode):
    """Notes each operation of a forward of `model`."""

    supports_higher_order_operators = True

    def __init__(self, model: nn.Module) -> None:
        TorchDispatchMode.__init__(self)
        self.found: list[Noted] = []
        self._model = model
        self._known: dict[int, tuple[torch.Tensor, Origin]] = {}  # by identity, and kept alive
        self._given = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note an operation, and run it; what fakes are asked for (their device) is none."""
        if getattr(func, "namespace", "") == "prim":
            return func(*args, **(kwargs or {}))
        leaves, structure = pytree.tree_flatten((args, kwargs or {}))
        position = len(self.found)
        self._note(str(func), (structure, torch.is_grad_enabled()), leaves)
        results = func(*args, **(kwargs or {}))
        for i, result in enumerate(pytree.tree_leaves(results)):
            if isinstance(result, torch.Tensor):
                self._known[id(result)] = result, Made(position, i)
        return results

    def note_returned(self, value: object) -> None:
        """Note what the forward returned, as if an operation took it."""
        self._note("return", (), pytree.tree_leaves(value))

    def _note(self, operator: str, said: tuple[object, ...], leaves: list[object]) -> None:
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        origins, require_grad = map(self._origin, tensors), (t.requires_grad for t in tensors)
        said = (*said, *map(_said, leaves))
        self.found.append(Noted(operator, said, tuple(origins), tuple(require_grad)))

    def _origin(self, tensor: torch.Tensor) -> Origin:
        if id(tensor) not in self._known:
            self._learn()
        if id(tensor) not in self._known:
            self._known[id(tensor)] = tensor, self._given
            self._given += 1
        return self._known[id(tensor)][1]

    def _learn(self) -> None:
        """Learn the names of what the model holds now: while it runs, its fakes."""
        held = (*self._model.named_parameters(), *self._model.named_buffers())
        for name, tensor in held:
            self._known.setdefault(id(tensor), (tensor, Held(name)))


def _said(leaf: object) -> object:
    if not isinstance(leaf, torch.Tensor):
        return repr(leaf)
    node = type(leaf.grad_fn).__name__ if leaf.requires_grad else ""
    hooks = len(leaf._backward_hooks or ())
    return tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device.type, node, hooks
