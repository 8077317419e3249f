"""Trace a model into one joint forward-and-backward FX graph.

Dynamo first, because its graph carries the user's variable names; where it refuses, AOTAutograd
traces the module itself (non-strict): fewer names, the same graph.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._dynamo.functional_export import dynamo_graph_capture_for_export
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch.utils import _pytree as pytree

from remat_gen.ir.errors import TraceError


@dataclass(frozen=True, slots=True)
class Joint:
    """The joint graph; not `strict` where Dynamo refused: names of inputs begin with `model.`."""

    graph_module: torch.fx.GraphModule
    strict: bool


def trace_joint(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], loss_only: bool
) -> Joint:
    """Trace one training step; gradients flow in at the loss, or at every output that can take one.

    The global generator, the buffers and the gradients of the model are left as they were. Each
    differentiated output leaves through an `aten.clone`, the others through an `aten.detach`:
    otherwise AOTAutograd gives no gradient to an output that is a view, one to two equal outputs,
    and one to outputs that nobody differentiates.

    Raises:
        TraceError: neither way of tracing accepts the model.
    """
    with _quiet(), torch.random.fork_rng(devices=_cuda_devices(model)):
        try:
            return Joint(_strict(model, args, kwargs, loss_only), strict=True)
        except Exception as refused:  # Dynamo raises errors of many unrelated types
            return Joint(_non_strict(model, args, kwargs, loss_only, refused), strict=False)


def _strict(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], loss_only: bool
) -> torch.fx.GraphModule:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(allow_rnn=True):
        captured = dynamo_graph_capture_for_export(model)(*args, **kwargs)
    _separate(captured, loss_only)
    return _export(captured, args, kwargs)


def _separate(captured: torch.fx.GraphModule, loss_only: bool) -> None:
    output = next(node for node in captured.graph.nodes if node.op == "output")
    leaves = list(output.args[0])
    with captured.graph.inserting_before(output):
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, torch.fx.Node):
                differentiated = takes_gradient(leaf.meta.get("example_value"), loss_only)
                method = "clone" if differentiated else "detach"
                leaves[i] = captured.graph.call_method(method, (leaf,))
                leaves[i].meta = dict(leaf.meta)
    output.args = (tuple(leaves),)
    captured.recompile()


def takes_gradient(leaf: object, loss_only: bool) -> bool:
    """Tell whether the planned backward takes a gradient for an output leaf."""
    if not isinstance(leaf, torch.Tensor) or not leaf.requires_grad:
        return False
    return leaf.ndim == 0 or not loss_only


def _non_strict(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    loss_only: bool,
    refused: Exception,
) -> torch.fx.GraphModule:
    try:
        return _export(_Separated(model, loss_only), args, kwargs)
    except Exception as error:  # whatever it is, the user gets one readable reason
        raise TraceError(explain(refused, error)) from error


def _export(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.fx.GraphModule:
    with contextlib.ExitStack() as stack:
        joint = aot_export_joint_with_descriptors(stack, module, args, kwargs)
        return joint.graph_module


class _Separated(nn.Module):
    """What `_separate` does, for a module that is traced without Dynamo."""

    def __init__(self, model: nn.Module, loss_only: bool) -> None:
        super().__init__()
        self.model = model
        self.loss_only = loss_only
        self.training = model.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves(self.model(*args, **kwargs))
        return tuple(map(self._separate, leaves))

    def _separate(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.clone() if takes_gradient(leaf, self.loss_only) else leaf.detach()


def explain(refused: Exception, error: Exception) -> str:
    """Say in a sentence why a model cannot be traced, with the user's line where it is known."""
    for candidate in (refused, error):
        text = str(candidate)
        where = _user_line(text)
        if where:
            return f"{where}: the model cannot be traced: {_first_sentence(text)}"
    return f"the model cannot be traced: {_first_sentence(str(refused) or str(error))}"


def _user_line(text: str) -> str:
    """Return `file:line` of the last frame outside of torch that a message names."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', text)
    outside = [(f, n) for f, n in frames if "/torch/" not in f and not f.startswith("<")]
    return f"{outside[-1][0].rsplit('/', 1)[-1]}:{outside[-1][1]}" if outside else ""


def _first_sentence(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")
    return line if len(line) <= 300 else line[:297] + "…"


def _cuda_devices(model: nn.Module) -> list[torch.device]:
    return list({p.device for p in model.parameters() if p.device.type == "cuda"})


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch's own logging of refused traces off the user's terminal."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
