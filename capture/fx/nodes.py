"""Questions about single FX nodes of the joint graph."""

from __future__ import annotations

from typing import Any

import torch

from remat_gen.capture.fx.metadata import operator_name, where
from remat_gen.capture.fx.storages import Storages, tensors_of
from remat_gen.ir import graph as ir
from remat_gen.ir.errors import TraceError


def live_nodes(joint: torch.fx.Graph) -> list[torch.fx.Node]:
    """Return the nodes that the step needs: a dead random operation still moves the stream."""
    live: set[torch.fx.Node] = set()
    for node in reversed(joint.nodes):
        if node.op == "output":
            live.update(behind(n) for n in node.all_input_nodes)
        elif node in live or node.op == "placeholder" or is_random(node):
            live.add(node)
            live.update(node.all_input_nodes)
    return [n for n in joint.nodes if n in live]


def behind(node: torch.fx.Node) -> torch.fx.Node:
    """Return what an output was before tracing put a clone or a detach in front of it."""
    separated = node.target in (torch.ops.aten.clone.default, torch.ops.aten.detach.default)
    return node.all_input_nodes[0] if separated else node


def is_random(node: torch.fx.Node) -> bool:
    """Tell whether a node draws from the global generator."""
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags and not never_drops(node)


def never_drops(node: torch.fx.Node) -> bool:
    """Tell whether a random operation draws nothing: attention with a dropout of 0."""
    assert isinstance(node.target, torch._ops.OpOverload)  # nothing else has tags
    names = [a.name for a in node.target._schema.arguments]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    return bool(given.get("dropout_p", 0.0 if "dropout_p" in names else None) == 0.0)


def traits_of(node: torch.fx.Node) -> set[ir.Trait]:
    """Return the traits of the operation that a node calls."""
    return {ir.Trait.RANDOM} if is_random(node) else set()


def target_of(node: torch.fx.Node, model_file: str) -> str:
    """Return the operator that a node calls: `aten.addmm.default`.

    Raises:
        TraceError: it calls something else, as where a custom operator writes into its arguments.
    """
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    place = where(node, model_file)
    if "auto_functionalized" in str(target):
        raise TraceError(
            f"{place}: {node.args[0]} writes into its arguments (mutates_args), which a plan does "
            "for PyTorch's own operators alone: let it return what is new, and copy that into place"
        )
    raise TraceError(f"{place}: the trace calls {target}, which cannot be written as source")


def without_statistics(node: torch.fx.Node) -> tuple[Any, ...]:
    """Return the arguments of a node, without the running statistics that training does not read.

    The trace hands them to BatchNorm's backward, which would keep them alive until then.
    """
    if node.target is torch.ops.aten.native_batch_norm_backward.default and node.args[7]:
        return (*node.args[:3], None, None, *node.args[5:])
    return node.args


# Functional forms of in-place writes (`clone_preserve_strides` in aten/src/ATen).
_COPYING = frozenset(
    "copy slice_scatter select_scatter diagonal_scatter as_strided_scatter".split()
)


def copies_storage(node: torch.fx.Node) -> bool:
    """Tell whether a node's result takes as much as the whole storage behind its first argument.

    Fake tensors know it only sometimes: torch's cache of fake results remembers shape, strides and
    offset of a result, and no storage.
    """
    copied = node.all_input_nodes[0].meta.get("val") if node.all_input_nodes else None
    if operator_name(node) not in _COPYING or not isinstance(copied, torch.Tensor):
        return False
    steps = zip(copied.shape, copied.stride(), strict=True)
    return not any(step == 0 and size != 1 for size, step in steps)  # expanded ones are unfolded


def position(node: torch.fx.Node) -> int:
    """Return which of the results of its input a `getitem` picks."""
    picked = node.args[1]
    assert isinstance(picked, int)  # it is `operator.getitem` of a tuple
    return picked


def shares(base: torch.fx.Node, view: torch.fx.Node) -> bool:
    """Tell whether two nodes have a storage in common."""
    keys = {Storages.key(v) for v in tensors_of(view)}
    return any(Storages.key(v) in keys for v in tensors_of(base))
