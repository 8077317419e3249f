"""Paths of parameters as Python expressions, from the model or from the layer that owns them."""

from __future__ import annotations

import keyword

from torch import nn

from remat_gen.codegen.expressions.expressions import quoted


def access(start: str, module: nn.Module, path: str) -> str:
    """Write how a path is reached from a variable: `self.h[0].attn`, whatever its parts are named.

    Each part is an index, a key or an attribute as its container wants it; odd names are quoted.
    """
    text = start
    owner: object = module
    for part in filter(None, path.split(".")):
        text = _step(text, owner, part)
        owner = _child(owner, part)
    return text


def _step(text: str, owner: object, part: str) -> str:
    if isinstance(owner, nn.ModuleList | nn.Sequential | nn.ParameterList) and part.isdigit():
        return f"{text}[{int(part)}]"
    if isinstance(owner, nn.ModuleDict | nn.ParameterDict):
        return f"{text}[{quoted(part)}]"
    if part.isidentifier() and part.isascii() and not keyword.iskeyword(part):
        return f"{text}.{part}"
    return f"getattr({text}, {quoted(part)})"


def _child(owner: object, part: str) -> object:
    if isinstance(owner, nn.ModuleDict | nn.ParameterDict):
        return owner[part]
    return getattr(owner, part)
