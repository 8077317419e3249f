"""Tensors that forward reads and that are no parameters, buffers or inputs: written out as numbers.

Large ones are read where the model has them, as buffers are. A trace has them as they are, while
everything that is made of them is fake: their views share nothing with them there. Unseen, two
views of one constant would be one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._functorch._aot_autograd.descriptors import ParamAOTInput
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

from remat_gen.capture.fx.storages import is_getitem, tensors_of
from remat_gen.capture.lower.naming import wanted_of_forward


@dataclass(frozen=True, slots=True)
class AttributeInput:
    """Describes an input of a joint graph, as torch's descriptors do: an attribute of a module."""

    path: str


def tidied(joint: torch.fx.Graph, attributes: Mapping[int, str], prefix: str) -> None:
    """Let one node read a tensor that several read, and read each in the order of its memory.

    What the model has in `attributes` (paths by identity) is read there: an input of the graph. So
    are parameters that an autograd function's backward finds by itself, as a reversible block's:
    they are inputs already. `prefix` stands before their names.
    """
    wanted = wanted_of_forward([*joint.nodes])  # where autograd would have to see them
    given = {
        desc.target.removeprefix(prefix): node
        for node in joint.find_nodes(op="placeholder")
        if isinstance(desc := node.meta.get("desc"), ParamAOTInput)
    }
    first: dict[int, torch.fx.Node] = {}
    for node in [n for n in joint.nodes if n.op == "get_attr"]:
        value = getattr(joint.owning_module, str(node.target), None)
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            continue
        kept = first.setdefault(id(value), node)
        if kept is not node:
            node.replace_all_uses_with(kept)
            joint.erase_node(node)
    for node in first.values():
        value = getattr(joint.owning_module, str(node.target))
        path = attributes.get(id(value))
        if path in given and node not in wanted:
            node.replace_all_uses_with(given[path])
            joint.erase_node(node)
        elif path is not None and not isinstance(value, nn.Parameter):
            _read_there(node, value, AttributeInput(path))
        else:
            _read_in_order(node)


def _read_there(node: torch.fx.Node, value: torch.Tensor, where: AttributeInput) -> None:
    """Let an input stand for a tensor that the model has."""
    graph = node.graph
    with graph.inserting_before(next(iter(graph.nodes))):
        given = graph.placeholder(f"attribute_{node.name}")
    given.meta["desc"] = where
    node.replace_all_uses_with(given)
    graph.erase_node(node)
    made_fake(given, value)


def _read_in_order(node: torch.fx.Node) -> None:
    """Read a transposed tensor as it lies there, and transpose that: kernels round otherwise."""
    owner: Any = node.graph.owning_module
    value = getattr(owner, str(node.target))
    order = sorted(range(value.ndim), key=value.stride, reverse=True)
    in_order = value.permute(order)
    if value.is_contiguous() or not in_order.is_contiguous():
        return
    setattr(owner, name := f"{node.target}_in_order", in_order)
    graph = node.graph
    with graph.inserting_before(node):
        base = graph.create_node("get_attr", name)
    with graph.inserting_after(node):
        turned = graph.call_function(
            torch.ops.aten.permute.default, (base, [order.index(i) for i in range(value.ndim)])
        )
    reader = next(iter(node.users), None)
    turned.meta.update({} if reader is None else {**reader.meta, "val": None})
    node.replace_all_uses_with(turned)
    graph.erase_node(node)


def made_fake(constant: torch.fx.Node, value: torch.Tensor) -> None:
    """Let a constant's node, and those of views of it, stand for fake tensors of one storage."""
    mode = next(_modes(constant.graph.nodes), None)
    if mode is None:
        constant.meta.setdefault("val", value)
        return
    with mode:  # not of `value` itself: other constants may look at its storage
        fake = torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        )
    fakes: dict[torch.fx.Node, Any] = {constant: fake}

    def value_of(argument: Any) -> Any:
        is_node = isinstance(argument, torch.fx.Node)
        return fakes.get(argument, argument.meta.get("val")) if is_node else argument

    with mode:
        for node in constant.graph.nodes:
            if not fakes.keys().isdisjoint(node.all_input_nodes) and _aliases(node):
                args, kwargs = pytree.tree_map(value_of, (node.args, node.kwargs))
                fakes[node] = node.target(*args, **kwargs)
    for node, fake in fakes.items():
        node.meta["val"] = fake


def _modes(nodes: Iterable[torch.fx.Node]) -> Iterator[FakeTensorMode]:
    for node in nodes:
        for tensor in tensors_of(node):
            if isinstance(tensor, FakeTensor):
                yield tensor.fake_mode


def _aliases(node: torch.fx.Node) -> bool:
    """Tell whether a node returns views of what it reads, by the operator's schema."""
    if is_getitem(node):
        return True
    schema = getattr(node.target, "_schema", None)
    aliases = [result.alias_info for result in schema.returns] if schema else []
    return any(alias is not None and not alias.is_write for alias in aliases)
