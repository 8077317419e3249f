"""Modules that a model has by several paths, named as `named_parameters()` names what they hold."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from remat_gen.capture.fx.metadata import clean_path


def tell_first_paths(graph: torch.fx.Graph, model: nn.Module) -> None:
    """Let the nodes of Dynamo's graph say the first path of each module that they ran in.

    Dynamo takes the one that forward comes by first, and keeps to it: layers that something else
    holds too, an updater or a wrapper, would be its, apart from their own parameters and from what
    the user pins (`--keep 'layers.*'`). A norm that two layers share is each layer's own: there
    what it is held by runs, too.
    """
    first = {module: path for path, module in model.named_modules()}
    every = dict(model.named_modules(remove_duplicate=False))
    others = {path: first[module] for path, module in every.items() if first[module] != path}
    for node in graph.nodes if others else ():
        stack = node.meta.get("nn_module_stack")
        if stack:
            paths = [clean_path(path) for path, *_ in stack.values()]
            strange = {p for p in paths if p in others and _owner(p, every) not in ("", *paths)}
            node.meta["nn_module_stack"] = {
                key: (
                    others[at] if any(f"{at}.".startswith(f"{p}.") for p in strange) else path,
                    *r,
                )
                for at, (key, (path, *r)) in zip(paths, stack.items(), strict=True)
            }


def _owner(path: str, modules: Mapping[str, nn.Module]) -> str:
    """Return the path of what holds a module and may run: a list of modules never does."""
    owner = path.rpartition(".")[0]
    lists = (nn.ModuleList, nn.ModuleDict)
    return _owner(owner, modules) if isinstance(modules.get(owner), lists) else owner
