"""Build a model whose tensors have shapes and no values: nothing is allocated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.process.replaced import replaced


class FakeMode(FakeTensorMode):
    """A mode that deep copies of its tensors stay in.

    A module that copies another (`nn.Transformer` does it for every layer) otherwise copies the
    mode as well, and torch refuses to trace fake tensors of two modes.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)

    def __deepcopy__(self, _memo: object) -> FakeMode:
        """Return the mode itself."""
        return self


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """Make every tensor a fake one, without what torch says of that."""
    with quiet(), FakeMode(), replaced(torch.utils, "swap_tensors", _exchange):
        yield


def has_constants(model: nn.Module) -> bool:
    """Tell whether a module has a tensor that is no parameter or buffer: its values are traced."""
    held = [v for m in model.modules() for k, v in vars(m).items() if k not in _STATE]
    seen: set[int] = set()
    while held:
        value = held.pop()
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
            return True
        if id(value) in seen or isinstance(value, type | nn.Module | nn.Parameter):
            continue
        seen.add(id(value))
        inside = pytree.tree_leaves(value)
        held += (
            inside
            if len(inside) != 1 or inside[0] is not value
            else getattr(value, "__dict__", {}).values()
        )
    return False


_STATE = frozenset({"_parameters", "_buffers", "_modules"})


def take_values_away(model: nn.Module, arguments: Any) -> Any:
    """Put fake tensors in the place of a built model's state; return fake arguments.

    What it has of other tensors keeps its values, which are traced.
    """
    mode = FakeMode()
    for module in model.modules():
        states: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for state in states:
            for name, tensor in state.items():
                if tensor is not None:
                    state[name] = mode.from_tensor(tensor)  # of a parameter, a fake parameter
    return pytree.tree_map_only(Tensor, mode.from_tensor, arguments)


def _exchange(one: torch.Tensor, other: torch.Tensor) -> None:
    """Let two fake tensors change places, as `model.to(torch.bfloat16)` has parameters do.

    `torch.utils.swap_tensors` refuses tensors that something refers to weakly, as the fake mode
    does; it looks them up by identity, and the places are what is exchanged.
    """
    one.__dict__, other.__dict__ = other.__dict__, one.__dict__
    torch._C._swap_tensor_impl(one, other)
