"""The arguments of one training step: called for, checked, moved to the device."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from remat_gen.capture.load.builders import described
from remat_gen.capture.load.named_calls import Build, NamedCall, named_call, required
from remat_gen.capture.load.records import LEAVES, ends, register_containers
from remat_gen.capture.process.isolation import UserCode
from remat_gen.ir.errors import UsageError

INPUTS = "example_inputs"


@dataclass(frozen=True, slots=True)
class StepInputs:
    """What the model is called with: `model(*args, **kwargs)`."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def step_inputs(module: ModuleType, path: Path, name: str) -> StepInputs:
    """Call the function in the user's file that makes the arguments of a step.

    Raises:
        UsageError: there is none, it fails, or returns something else than arguments.
    """
    call = named_call(name, "--inputs")
    make, name = _maker(module, path, call), call.name
    with UserCode(path, f"{name}()"):
        made = make()
    step = as_arguments(made)
    if step is None:
        raise UsageError(
            f"{path}: {name}() returned {described(made)}; return a tuple (positional), a dict "
            f"(keyword) or (tuple, dict){', as in `return (x,)`' * isinstance(made, Tensor)}"
        )
    for where, leaf in pytree.tree_leaves_with_path((step.args, step.kwargs)):
        if not isinstance(leaf, LEAVES):
            raise UsageError(
                f"{path}: {name}() has {described(leaf)} in {_access(where)}; inputs are tensors, "
                "numbers, strings, None, and containers and objects of them; give None in its "
                "place where forward does not read it"
            )
    return step


def _maker(module: ModuleType, path: Path, call: NamedCall) -> Build:
    name = call.name
    make: object = getattr(module, name, None)
    if not hasattr(module, name):
        write = f"write `def {name}()` that returns the arguments of one step, as a tuple or dict"
        raise UsageError(f"{path}: has no {name}; {write}, or name one with --inputs")
    if not callable(make):
        raise UsageError(f"{path}: {name} is {described(make)}; it must be a function")
    build = call.of(make)
    if missing := required(build):
        raise UsageError(
            f"{path}: {name} needs arguments ({', '.join(missing)}); give them with --inputs"
        )
    return build


def as_arguments(made: object) -> StepInputs | None:
    """Read a tuple, a dict or (tuple, dict) as arguments; None where it is none of these.

    torch's pytree knows the objects among them from then on.

    Raises:
        UsageError: one of them holds itself.
    """
    args: object = made
    kwargs: Mapping[Any, Any] = {}
    if isinstance(made, Mapping):  # a tokenizer's, too
        args, kwargs = (), made
    elif isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], dict):
        args, kwargs = made if isinstance(made[0], tuple) else (made, {})
    if not isinstance(args, tuple) or not _names(kwargs):
        return None
    if not ends((args, kwargs)):
        raise UsageError("an input holds itself, as an object that knows its parent does")
    register_containers((args, kwargs), objects=True)
    return StepInputs(tuple(args), dict(kwargs))


def _names(arguments: Mapping[Any, Any]) -> bool:
    return all(isinstance(name, str) and name.isidentifier() for name in arguments)


def _access(where: tuple[Any, ...]) -> str:
    """Write the path to a leaf as the user would: `inputs[0]`, `mask`, `batch['ids']`."""
    half, *rest = where
    if half.idx == 0:
        return "inputs" + pytree.keystr(tuple(rest))
    first, *deeper = rest
    return str(first.key) + pytree.keystr(tuple(deeper))


def moved(step: StepInputs, device: torch.device) -> StepInputs:
    """Move every tensor to the device; a tensor that stands twice stays one.

    All become leaves: a step goes back to its inputs, not to what they were made of before it.
    """
    there: dict[int, Tensor] = {}

    def move(tensor: Tensor) -> Tensor:
        if tensor.device == device and tensor.is_leaf:
            return tensor
        if id(tensor) not in there:
            copy = tensor.detach().to(device)
            there[id(tensor)] = copy.requires_grad_(tensor.requires_grad)
        return there[id(tensor)]

    args, kwargs = pytree.tree_map_only(Tensor, move, (step.args, step.kwargs))
    return StepInputs(args, kwargs)


def check_step(model: nn.Module, step: StepInputs, path: Path, name: str) -> None:
    """Check that the model takes the arguments and that there is something to train.

    Raises:
        UsageError: `forward` cannot be called so, or no gradient flows anywhere.
    """
    try:
        inspect.signature(model.forward).bind(*step.args, **step.kwargs)
    except TypeError as error:
        raise UsageError(
            f"{path}: {name}() does not fit {type(model).__name__}.forward: {error}"
        ) from error
    leaves = [*model.parameters(), *pytree.tree_leaves((step.args, step.kwargs))]
    if not any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in leaves):
        raise UsageError(
            f"{path}: no parameter of {type(model).__name__} requires a gradient: "
            f"there is no backward to plan"
        )
