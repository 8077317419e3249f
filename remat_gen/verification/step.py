"""One training step as the design defines it: forward, incoming gradients, backward.

The loss is the single scalar output that requires grad, if there is exactly one; then only it is
differentiated. Otherwise a gradient flows into every output that requires grad, as the loss that a
user computes outside of the model would send it, and into the scalars that forward keeps on the
model. An output that hands a parameter, a buffer or an input on is none of the step's, and one that
stands there twice is one.
"""

from __future__ import annotations

import dataclasses
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from remat_gen.capture.load.step_context import context_of
from remat_gen.capture.observe.outputs import is_loss
from remat_gen.capture.process.operands import storage_of
from remat_gen.capture.values.kept_places import held_on

_ASKED = "free_bytes"  # a generated module asks this function of its own how much memory is free


def training_step(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], in_flight: int = 1
) -> object:
    """Run forward and backward; return what the model returned, which lives until then.

    Steps are `in_flight`: the forwards of all but this one have run, and wait for their backward.

    Forward runs in the model's `step_context()`, backward outside of it.

    Gradients accumulate into `.grad`. The incoming gradients are random, from own generators, are
    made when backward begins, and are held by nothing but autograd.
    """
    waiting = [forward_step(model, args, kwargs) for _ in range(in_flight - 1)]
    kept = KeptScalars(model)
    outputs = forward_step(model, args, kwargs)
    backward_step(outputs, model, args, kwargs, kept)
    del waiting
    return outputs


class KeptScalars:
    """The scalars with a gradient that a forward keeps on the model: not those of one before it."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._before = {id(t): weakref.ref(t) for t in self._there()}

    def new(self) -> list[torch.Tensor]:
        """Return those that have been put there since."""
        before = {key: reference() for key, reference in self._before.items()}
        return [t for t in self._there() if before.get(id(t)) is not t]

    def _there(self) -> list[torch.Tensor]:
        held = (value for _, value in held_on(self.model))
        return [value for value in held if is_loss(value) and value.grad_fn is not None]


def backward_step(
    outputs: object,
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    kept: KeptScalars | None = None,
) -> None:
    """Run backward of what a model returned, and has kept."""
    wanted = [x for x in leaves_of(outputs) if isinstance(x, torch.Tensor) and x.requires_grad]
    if len(wanted) > 1:
        wanted = _made_by_the_step(wanted, model, (args, kwargs))
    losses = [leaf for leaf in wanted if is_loss(leaf)]
    if len(losses) == 1:
        torch.autograd.backward(losses)
    elif wanted:
        more = kept.new() if kept else []
        wanted = _made_by_the_step([*wanted, *more], model, (args, kwargs)) if more else wanted
        gradients_of: Callable[..., torch.Tensor] = _IncomingGradients.apply
        token = gradients_of(*wanted)
        torch.autograd.backward(token, torch.empty_like(token))


def forward_step(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    """Run forward in the model's `step_context()`."""
    with context_of(model):
        return model(*args, **kwargs)


def _made_by_the_step(
    outputs: Sequence[torch.Tensor], model: nn.Module, arguments: object
) -> list[torch.Tensor]:
    """Return each output once, without those that look at a parameter, a buffer or an input."""
    inputs = (leaf for leaf in leaves_of(arguments) if isinstance(leaf, torch.Tensor))
    given = {storage_of(t) for t in (*model.parameters(), *model.buffers(), *inputs)}
    once = {id(output): output for output in outputs}
    return [output for output in once.values() if storage_of(output) not in given]


def leaves_of(value: object) -> Iterator[Any]:
    """Yield the leaves of what a model returns or takes; dataclasses count as containers."""
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, Mapping):  # of a class of the user's
            yield from leaves_of([*leaf.values()])
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            for member in dataclasses.fields(leaf):
                yield from leaves_of(getattr(leaf, member.name))
        else:
            yield leaf


def structure_of(value: object) -> str:
    """Describe the containers around the leaves: names of types, keys and fields."""
    name = type(value).__name__
    if isinstance(value, Mapping):
        inside = [f"{key!r}: {structure_of(item)}" for key, item in value.items()]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        members = [member.name for member in dataclasses.fields(value)]
        inside = [f"{member}={structure_of(getattr(value, member))}" for member in members]
    elif isinstance(value, list | tuple):
        inside = [structure_of(item) for item in value]
    else:
        return "tensor" if isinstance(value, torch.Tensor) else name
    return f"{name}({', '.join(inside)})"


def clear_gradients(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Set `.grad` of every parameter and input to None."""
    model.zero_grad(set_to_none=True)
    for leaf in leaves_of((tuple(args), dict(kwargs))):
        if isinstance(leaf, torch.Tensor):
            leaf.grad = None


class _IncomingGradients(torch.autograd.Function):
    """A loss without bytes: its backward makes each output's gradient and hands it to autograd."""

    @staticmethod
    def forward(ctx: Any, *outputs: torch.Tensor) -> torch.Tensor:
        ctx.like = [torch.empty_like(o, device="meta") for o in outputs]
        ctx.devices = [o.device for o in outputs]
        return torch.empty(0, device=outputs[0].device)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pairs = zip(ctx.like, ctx.devices, strict=True)
        return tuple(_gradient(like, device, i) for i, (like, device) in enumerate(pairs))


def _gradient(like: torch.Tensor, device: torch.device, seed: int) -> torch.Tensor:
    gradient = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device)
    return gradient.normal_(generator=torch.Generator(device).manual_seed(seed))


def globals_of(model: nn.Module) -> dict[str, Any]:
    """Return the globals of the module that a planned model's class stands in."""
    found: dict[str, Any] = inspect.unwrap(type(model).forward).__globals__
    return found


@contextmanager
def told_free(model: nn.Module, nbytes: int) -> Iterator[None]:
    """Let a planned model's steps find so much memory free, if they ask."""
    namespace = globals_of(model)
    asked = namespace.get(_ASKED)
    if asked is None:
        yield
        return
    namespace[_ASKED] = lambda: nbytes
    try:
        yield
    finally:
        namespace[_ASKED] = asked
