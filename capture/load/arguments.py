"""How the leaves of a call's arguments are reached from the parameters of `forward`."""

from __future__ import annotations

import enum
import inspect
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from remat_gen.capture.process.copies import copied
from remat_gen.ir.errors import TraceError, UsageError


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf: `path` is a Python expression over forward's parameters: `ids`, `batch['mask']`.

    One that is `fixed` has the same numbers in each step: they are constants to the plan.
    """

    path: str
    value: Any
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """The example call. Leaves stand in the order of torch's pytree of `(args, kwargs)`.

    `same` are the paths of tensors that are one there.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: tuple[Leaf, ...]
    same: tuple[str, ...] = ()

    @property
    def fixed(self) -> dict[str, torch.Tensor]:
        """Return the tensors whose numbers are the same in each step, by path."""
        return {leaf.path: leaf.value for leaf in self.leaves if leaf.fixed}


def describe_call(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Copy the example's tensors, each apart, and name every leaf.

    Two arguments that are the same tensor (labels=input_ids) need not be the same in training:
    traced as one, the second would be ignored silently.
    """
    given = pytree.tree_leaves((args, kwargs))
    args, kwargs = pytree.tree_map_only(torch.Tensor, copied, (args, kwargs))
    signature = inspect.signature(type(model).forward)
    keyed, _ = pytree.tree_flatten_with_path((args, kwargs))
    leaves = tuple(Leaf(_path(signature, path), value) for path, value in keyed)
    often = Counter(id(value) for value in given if isinstance(value, torch.Tensor))
    same = (leaf.path for leaf, value in zip(leaves, given, strict=True) if often[id(value)] > 1)
    return Call(args, kwargs, leaves, tuple(same))


def as_one(call: Call) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments with one tensor for all that are laid out alike, None if none are."""
    first: dict[object, torch.Tensor] = {}

    def shared(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
            return leaf
        layout = leaf.shape, leaf.stride(), leaf.dtype, leaf.device, leaf.requires_grad
        return first.setdefault(layout, leaf)

    one = pytree.tree_map(shared, (call.args, call.kwargs))
    pairs = zip(pytree.tree_leaves(one), call.leaves, strict=True)
    return None if all(value is leaf.value for value, leaf in pairs) else one


def with_fixed(call: Call, names: Iterable[str]) -> Call:
    """Return a call some of whose inputs are fixed.

    Raises:
        UsageError: there is no such tensor, or it requires grad.
    """
    asked = frozenset(names)
    tensors = {leaf.path: leaf.value for leaf in call.leaves if _may_be_fixed(leaf.value)}
    for name in sorted(asked):
        if name not in tensors:
            listed = ", ".join(tensors) or "none"
            raise UsageError(f"--fix {name}: forward has the tensors {listed}")
        if tensors[name].requires_grad:
            raise UsageError(
                f"--fix {name}: it requires grad, and what is trained on changes: detach it in "
                "example_inputs(), or leave out --fix"
            )
    leaves = tuple(replace(leaf, fixed=leaf.path in asked) for leaf in call.leaves)
    return replace(call, leaves=leaves)


def _may_be_fixed(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _path(signature: inspect.Signature, path: tuple[Any, ...]) -> str:
    side, first, *rest = path
    by_position = side.idx == 0
    head = _positional(signature, first.idx) if by_position else _keyword(signature, first.key)
    return head + "".join(_access(key) for key in rest)


def _positional(signature: inspect.Signature, index: int) -> str:
    parameters = list(signature.parameters.values())[1:]
    for position, parameter in enumerate(parameters):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return f"{parameter.name}[{index - position}]"
        if position == index:
            return parameter.name
    raise IndexError(index)


def _keyword(signature: inspect.Signature, name: str) -> str:
    if name in signature.parameters:
        return name
    kinds = {p.kind: p.name for p in signature.parameters.values()}
    return f"{kinds[inspect.Parameter.VAR_KEYWORD]}[{name!r}]"


def _access(key: Any) -> str:
    if isinstance(key, pytree.SequenceKey):
        return f"[{key.idx}]"
    if isinstance(key, pytree.MappingKey):
        if isinstance(key.key, enum.Enum):
            raise TraceError(
                f"an argument is a dict with the key {key.key!r}: give it one of strings or numbers"
            )
        return f"[{key.key!r}]"
    return f".{key.name}"
