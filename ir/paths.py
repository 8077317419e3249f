"""Dotted paths of modules and names of what they make: the layer that one belongs to.

A layer is a member of a list, as `h.0` is of `h`: what a model repeats.
"""

from __future__ import annotations


def layer_of(path: str) -> str:
    """Return the outermost repeated layer of a module's path: `h.0` of `h.0.attn`, or ""."""
    parts = path.split(".")
    for i, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: i + 1])
    return ""


def layer_in(name: str) -> str:
    """Return the layer that owns a parameter, operation or value: `h.0` of `h.0.up.weight`, or "".

    The last part is the name itself: a parameter `2` of a list is in no layer.
    """
    return layer_of(name.rpartition(".")[0])
