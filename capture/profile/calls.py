"""Turn an operation of the graph back into a call: its target, its arguments."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from remat_gen.capture.as_eager.dropout import dropout_mask, dropout_scale
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.rnn import run_whole, step_by_step
from remat_gen.ir.errors import GraphError
from remat_gen.ir.graph import CHECK, Argument, Literal, Operation, Ref
from remat_gen.ir.size import Size

# Arithmetic on sizes is traced as calls of these modules, not of registered operators.
_PYTHON_MODULES = {"operator": operator, "_operator": operator, "math": math, "torch": torch}


def rng_state(device: torch.device) -> torch.Tensor:
    """Return the state of a device's global generator, a tensor on the CPU."""
    return kind_of(device).rng_state(device)


def check_value(condition: torch.Tensor, planned: bool, line: str) -> torch.Tensor:
    """Compare a condition with the planned one, as a step does; nothing comes of it."""
    if condition.device.type == "cpu":
        operator.ne(bool(condition), planned)
    return condition.new_empty(0)


# The graph's own targets (see `ir.graph.Operation`).
_OWN: dict[str, Callable[..., Any]] = {
    "remat.rng_state": rng_state,
    "remat.constant": torch.tensor,
    CHECK: check_value,
    "remat.dropout_mask.default": dropout_mask,
    "remat.dropout_scale.default": dropout_scale,
    **run_whole.OPERATORS,
    **step_by_step.OPERATORS,
}


def resolve(target: str) -> Callable[..., Any]:
    """Return the callable that a target names: "aten.addmm.default", "mylib.scale.default", ….

    Raises:
        GraphError: nothing of that name is registered with this torch.
    """
    if target in _OWN:
        return _OWN[target]
    namespace, *path = target.split(".")
    found: Any = _PYTHON_MODULES.get(namespace) or getattr(torch.ops, namespace)
    try:
        for name in path:
            found = getattr(found, name)
    except AttributeError as error:
        raise GraphError(f"this torch knows no operator {target}") from error
    if not callable(found):
        raise GraphError(f"{target} names no operator")
    operator: Callable[..., Any] = found
    return operator


def materialise(argument: Argument, tensors: Mapping[str, torch.Tensor]) -> object:
    """Return the Python value of an argument; a Ref becomes the tensor of that name.

    A Size becomes the number that it is for the example.

    Raises:
        GraphError: a Literal of unknown kind.
        KeyError: a Ref to a tensor that is not given.
    """
    if isinstance(argument, Ref):
        return tensors[argument.name]
    if isinstance(argument, Size):
        return argument.value
    if isinstance(argument, Literal):
        return _literal(argument)
    if isinstance(argument, tuple):
        return [materialise(item, tensors) for item in argument]
    return argument


def bind(
    operation: Operation, tensors: Mapping[str, torch.Tensor]
) -> tuple[list[object], dict[str, object]]:
    """Return the positional and keyword arguments of an operation."""
    args = [materialise(argument, tensors) for argument in operation.args]
    return args, {name: materialise(value, tensors) for name, value in operation.kwargs}


def _literal(literal: Literal) -> object:
    if literal.kind == "device":
        return torch.device(literal.text)
    if literal.kind == "float":
        return float(literal.text)
    if literal.kind == "complex":
        return complex(literal.text)
    if literal.kind in ("dtype", "layout", "memory_format"):
        return getattr(torch, literal.text)
    raise GraphError(f"an argument of unknown kind {literal.kind!r}: {literal.text}")
