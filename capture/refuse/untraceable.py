"""Refuse nodes of a trace that have no place in a plan, with the line and what to write instead."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from remat_gen.capture.fx import metadata
from remat_gen.capture.fx.storages import tensors_of
from remat_gen.ir.errors import TraceError, UnwrittenSizeError

OWN_GENERATOR = (
    "forward draws from a generator of its own, whose state a plan does not keep: leave out "
    "generator="
)

LARGEST_CONSTANT = 4096  # numbers; they are written out in the generated file


def refuse_effects(nodes: Iterable[torch.fx.Node], model_file: str) -> None:
    """Refuse operators that check or print."""
    for node in nodes:
        if node.target is torch.ops.higher_order.with_effects:
            raise TraceError(
                f"{metadata.where(node, model_file)}: {node.args[1]} does more than compute (it "
                "checks or prints), which a plan would lose: use a form that does not, as "
                "torch.linalg.inv_ex, solve_ex and cholesky_ex are"
            )


def refuse_writes_in_backward(
    joint: torch.fx.Graph, path_of: Callable[[torch.fx.Node], str]
) -> None:
    """Refuse a backward that writes into what the step is given: AOTAutograd copies it there."""
    for node in joint.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        target = node.args[0]
        if isinstance(target, torch.fx.Node) and target.op == "placeholder":
            raise TraceError(
                f"backward writes into {path_of(target)}, as a hook or an autograd function may: "
                "write into it in forward, or after the step"
            )


def refuse_sparse(node: torch.fx.Node, model_file: str) -> None:
    """Refuse tensors that have no storage with strides."""
    if any(t.layout is not torch.strided for t in tensors_of(node)):
        if node.op == "placeholder":
            raise TraceError(
                "forward reads a sparse argument or buffer, which cannot be planned: give its "
                "indices and values, or a dense one"
            )
        raise TraceError(
            f"{metadata.where(node, model_file)}: {node.target} makes a sparse tensor, which "
            "cannot be planned: use dense ones (sparse=False)"
        )


def refuse_unknown_shape(node: torch.fx.Node, model_file: str) -> None:
    """Refuse tensors whose shape at other lengths torch does not know."""
    if any(free_unbacked_symbols(t) for t in tensors_of(node)):
        raise TraceError(
            f"{metadata.where(node, model_file)}: the shape that {node.target} returns cannot "
            "be followed to other lengths: leave what it depends on out of --dynamic"
        )


@contextlib.contextmanager
def where_sizes_are_read(node: torch.fx.Node, model_file: str) -> Iterator[None]:
    """Say where what a size is cannot be written."""
    try:
        yield
    except UnwrittenSizeError as error:
        raise TraceError(f"{metadata.where(node, model_file)}: {error}") from error


def _lacks_memory(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor has no numbers: to read them may end the process."""
    try:
        tensor.data_ptr()
    except RuntimeError:
        return True
    return False


def constant_of(node: torch.fx.Node, joint: torch.fx.Graph, model_file: str) -> torch.Tensor:
    """Return the tensor that a `get_attr` node reads.

    Raises:
        TraceError: it is a generator, a branch of control flow, a parameter, sparse, or too large
            to be written out.
    """
    user = next(iter(node.users), node)
    where = metadata.where(user, model_file)
    value = getattr(joint.owning_module, str(node.target), None)
    if isinstance(value, torch.Generator):
        raise TraceError(f"{where}: {OWN_GENERATOR}")
    if not isinstance(value, torch.Tensor):
        raise TraceError(
            f"{where}: the model cannot be traced: control flow operators ({user.target}) have no "
            "place in a plan: use torch.where"
        )
    if isinstance(value, nn.Parameter) or value.requires_grad:
        raise TraceError(
            f"{where}: forward reads a parameter, or a tensor that requires grad, by another way "
            "than its module, as in a list: its numbers would be constants. Read it there "
            "(self.up.weight), or keep it in nn.ParameterList or nn.ParameterDict, layers in "
            "nn.ModuleList or nn.ModuleDict"
        )
    if value.layout is not torch.strided:
        raise TraceError(f"{where}: forward reads a sparse tensor: keep a dense one")
    if _lacks_memory(value):  # torch lost sight of what it is a view of
        raise TraceError(
            f"{where}: the model cannot be traced: a .real or .imag of a complex buffer is "
            "returned as it is: return a clone() of it"
        )
    if value.numel() > LARGEST_CONSTANT:
        raise TraceError(
            f"{where}: forward builds a constant of {value.numel()} numbers: register it as a "
            "buffer"
        )
    return value
