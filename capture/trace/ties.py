"""Tied parameters of a joint graph: one input, one gradient, as autograd has it.

Without Dynamo, each name of a parameter is an input of its own, with a gradient of its own.
Autograd adds them up where the parameter is, and holds the first until the last is there: that sum
has to be the graph's, or what is held is in no schedule.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch._functorch._aot_autograd.descriptors import GradAOTOutput, ParamAOTInput


def merge_ties(joint: torch.fx.GraphModule, module: nn.Module) -> None:
    """Let the first of a parameter's names stand for all of them."""
    owners = dict(module.named_parameters(remove_duplicate=False))
    first: dict[int, torch.fx.Node] = {}
    names: dict[int, set[str]] = {}
    for node in joint.graph.find_nodes(op="placeholder"):
        described = node.meta.get("desc")
        if isinstance(described, ParamAOTInput) and described.target in owners:
            owner = id(owners[described.target])
            names.setdefault(owner, set()).add(described.target)
            kept = first.setdefault(owner, node)
            if kept is not node:  # its readers' order tells names
                node.replace_all_uses_with(kept)
    several = [tied for tied in names.values() if len(tied) > 1]
    for tied in several:
        _add_up(joint.graph, tied)
    if several:
        joint.recompile()


def _add_up(graph: torch.fx.Graph, tied: set[str]) -> None:
    """Give the first name the sum of the gradients, in the order in which backward makes them."""
    output: Any = graph.output_node()
    leaving = list(output.args[0])
    at = [i for i, what in enumerate(output.meta["desc"]) if _gradient_of(what) in tied]
    order = {node: position for position, node in enumerate(graph.nodes)}
    made = sorted((leaving[i] for i in at if leaving[i] is not None), key=order.__getitem__)
    if not made:
        return
    total = made[0]
    for later in made[1:]:
        with graph.inserting_after(later):
            added = graph.call_function(torch.ops.aten.add.Tensor, (total, later))
        value = torch.ops.aten.add.Tensor(total.meta["val"], later.meta["val"])
        added.meta = {**later.meta, "val": value}
        total = added
    for i in at:
        leaving[i] = None
    leaving[at[0]] = total
    output.args = (leaving,)


def _gradient_of(what: object) -> str | None:
    """Return the name of the parameter that an output is the gradient of."""
    if isinstance(what, GradAOTOutput) and isinstance(what.grad_of, ParamAOTInput):
        return what.grad_of.target
    return None


__all__ = ["merge_ties"]
