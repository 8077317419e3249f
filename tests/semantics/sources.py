"""Source texts of small models: two layers that a per-layer plan runs again, and any ending."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

_TEMPLATE = '''
"""A small model."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

{prelude}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.down(F.gelu(self.up(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(8, 4)
{init}

    def body(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x

    def forward({arguments}) -> Any:
{forward}


def build_model() -> nn.Module:
    return Model()


def example_inputs() -> Any:
    return {inputs}
'''


def model_source(
    forward: str,
    *,
    init: str = "",
    prelude: str = "",
    arguments: str = "self, x: Tensor",
    inputs: str = "(torch.randn(6, 8),)",
) -> str:
    """Return a model file whose `forward` has the given body."""
    return _TEMPLATE.format(
        forward=textwrap.indent(textwrap.dedent(forward).strip(), " " * 8),
        init=textwrap.indent(textwrap.dedent(init).strip(), " " * 8),
        prelude=textwrap.dedent(prelude).strip(),
        arguments=arguments,
        inputs=inputs,
    )


def install_library(name: str, text: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let a file be imported as what is installed is."""
    installed = folder / "site-packages"
    installed.mkdir()
    (installed / f"{name}.py").write_text(text, encoding="utf-8")
    patch.syspath_prepend(str(installed))
    patch.delitem(sys.modules, name, raising=False)
