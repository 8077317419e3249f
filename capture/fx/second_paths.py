"""Modules that a model has by several paths, named as `named_parameters()` names what they hold."""

from __future__ import annotations

import torch
from torch import nn

from remat_gen.capture.fx.metadata import clean_path


def tell_first_paths(graph: torch.fx.Graph, model: nn.Module) -> None:
    """Let the nodes of Dynamo's graph say the first path of each module that they ran in.

    Dynamo takes the one that forward comes by first, and keeps to it: layers that something else
    holds too, an updater or a wrapper, would be its, apart from their own parameters and from what
    the user pins (`--keep 'layers.*'`).
    """
    first = {module: path for path, module in model.named_modules()}
    every = model.named_modules(remove_duplicate=False)
    others = {path: first[module] for path, module in every if first[module] != path}
    for node in graph.nodes if others else ():
        stack = node.meta.get("nn_module_stack")
        if stack:
            node.meta["nn_module_stack"] = {
                key: (others.get(clean_path(path), path), *rest)
                for key, (path, *rest) in stack.items()
            }
