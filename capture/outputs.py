"""What the model returns: run it once on fake tensors, which costs no memory and no time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree


@dataclass(frozen=True, slots=True)
class Returned:
    """The model's outputs: `value` is what it returned, with fake tensors as leaves."""

    value: Any

    @property
    def leaves(self) -> list[Any]:
        """Return the leaves in the order of torch's pytree."""
        return pytree.tree_leaves(self.value)

    @property
    def loss_only(self) -> bool:
        """Tell whether exactly one output is a scalar that can be differentiated: the loss."""
        return sum(is_loss(leaf) for leaf in self.leaves) == 1


def is_loss(leaf: object) -> bool:
    """Tell whether a leaf is a floating scalar that requires grad."""
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.ndim == 0


def run_on_fakes(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Returned:
    """Run a step's forward on fake copies of the model's state and inputs."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def fake(leaf: Any) -> Any:
        return mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf

    state = dict(model.named_parameters()) | dict(model.named_buffers())
    fakes = {name: fake(tensor) for name, tensor in state.items()}
    args, kwargs = pytree.tree_map(fake, (args, kwargs))
    with mode, torch.random.fork_rng(devices=[]):
        value = torch.func.functional_call(model, fakes, args, kwargs)
    return Returned(value)
