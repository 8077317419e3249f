"""Hooks that transformers puts on its own modules when a forward first asks for hidden states.

Audio models and backbones do so in every first step, some backbones as they are built. What the
hooks collect is part of the trace; a planned forward calls no submodule, so it needs none of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn

# Set on a module of transformers that has its hooks.
INSTALLED = "_output_capturing_hooks_installed"
LIBRARY = "transformers.utils.output_capturing"


def collects_outputs(hook: object) -> bool:
    """Tell whether a hook is one of the library's."""
    return getattr(hook, "__module__", "") == LIBRARY


def _of_library(module: nn.Module) -> list[int]:
    return [key for key, hook in module._forward_hooks.items() if collects_outputs(hook)]


@contextlib.contextmanager
def removed_afterwards(model: nn.Module) -> Iterator[None]:
    """Take the library's hooks off again that a forward installs meanwhile."""
    before = {hook for module in model.modules() for hook in module._forward_hooks}
    marked = {module for module in model.modules() if INSTALLED in vars(module)}
    try:
        yield
    finally:
        for module in model.modules():
            for key in set(_of_library(module)) - before:
                del module._forward_hooks[key]
            if module not in marked and INSTALLED in vars(module):
                delattr(module, INSTALLED)
