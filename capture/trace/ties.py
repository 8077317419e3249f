"""Tied parameters of a joint graph: one input, one gradient, as autograd has it.

Without Dynamo, each name of a parameter is an input of its own, with a gradient of its own.
Autograd adds them up where the parameter is, and holds the first until the last is there: that sum
has to be the graph's, or what is held is in no schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch._functorch._aot_autograd.descriptors import GradAOTOutput, ParamAOTInput


def merge_ties(joint: torch.fx.GraphModule, module: nn.Module) -> None:
    """Let the first of a parameter's names stand for all of them."""
    owners = dict(module.named_parameters(remove_duplicate=False))
    first: dict[int, torch.fx.Node] = {}
    names: dict[int, dict[str, int]] = {}  # with how many read each
    for node in joint.graph.find_nodes(op="placeholder"):
        described = node.meta.get("desc")
        if isinstance(described, ParamAOTInput) and described.target in owners:
            owner = id(owners[described.target])
            names.setdefault(owner, {})[described.target] = len(node.users)
            kept = first.setdefault(owner, node)
            if kept is not node:  # its readers' order tells names
                node.replace_all_uses_with(kept)
    several = [tied for tied in names.values() if len(tied) > 1]
    for tied in several:
        _add_up(joint.graph, tied)
    if several:
        joint.recompile()


def _add_up(graph: torch.fx.Graph, tied: Mapping[str, int]) -> None:
    """Give the first name the sum of the gradients, in the order in which backward makes them.

    What several readers of one name give was added up by itself: all are added up anew.
    """
    output: Any = graph.output_node()
    leaving, described = list(output.args[0]), map(_gradient_of, output.meta["desc"])
    at = {i: str(name) for i, name in enumerate(described) if name in tied}
    given = [(leaving[i], name) for i, name in at.items() if leaving[i] is not None]
    if not given:
        return
    order = {node: position for position, node in enumerate(graph.nodes)}
    sums = list[torch.fx.Node]()
    several = len(given) > 1
    made = [n for whole, name in given for n in _summands(whole, tied[name] * several, sums)]
    total, *others = sorted(made, key=order.__getitem__)
    for later in others:
        with graph.inserting_after(later):
            added = graph.call_function(torch.ops.aten.add.Tensor, (total, later))
        value = torch.ops.aten.add.Tensor(total.meta["val"], later.meta["val"])
        added.meta = {**later.meta, "val": value}
        total = added
    for i in at:
        leaving[i] = None
    leaving[min(at)] = total
    output.args = (leaving,)
    for added in sums:  # the last one first: nobody reads it now
        graph.erase_node(added)


def _summands(node: torch.fx.Node, readers: int, sums: list[torch.fx.Node]) -> list[torch.fx.Node]:
    """Return what autograd has added up to a gradient, for at most so many readers."""
    added = node.target is torch.ops.aten.add.Tensor and len(node.users) == 1 and not node.kwargs
    if readers < 2 or not added or not all(isinstance(arg, torch.fx.Node) for arg in node.args):
        return [node]
    first, last = node.args
    assert isinstance(first, torch.fx.Node) and isinstance(last, torch.fx.Node)
    if not first.meta["val"].shape == last.meta["val"].shape == node.meta["val"].shape:
        return [node]
    sums.append(node)
    return [*_summands(first, readers - 1, sums), last]


def _gradient_of(what: object) -> str | None:
    """Return the name of the parameter that an output is the gradient of."""
    if isinstance(what, GradAOTOutput) and isinstance(what.grad_of, ParamAOTInput):
        return what.grad_of.target
    return None
