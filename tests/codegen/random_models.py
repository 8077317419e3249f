"""Random small models as source text: a grammar of layers on `[rows, 16]`.

body  ::= layer*          layer ::= residual(layer) | concat(layer, layer) | split | leaf
leaf  ::= one of `random_leaves.LEAVES`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import strategies as st
from random_leaves import LEAVES


@dataclass(slots=True)
class _Writer:
    draw: st.DrawFn
    leaves: Mapping[str, tuple[str, str]]
    modules: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem.replace(' ', '_').strip('_')}{self.count}"

    def leaf(self, x: str) -> str:
        kind = self.draw(st.sampled_from(sorted(self.leaves)))
        module, text = self.leaves[kind]
        m, y = self.name(kind), self.name("x")
        if module:
            self.modules.append(module.format(m=m))
        self.lines += text.format(m=m, x=x, y=y).splitlines()
        return y

    def layer(self, x: str, depth: int) -> str:
        kinds = ["leaf", "leaf", "leaf", "residual", "concat", "split"] if depth else ["leaf"]
        kind = self.draw(st.sampled_from(kinds))
        y = self.name("y")
        if kind == "residual":
            self.lines.append(f"{y} = {x} + {self.layer(self.layer(x, depth - 1), depth - 1)}")
        elif kind == "concat":
            a, b = self.layer(x, depth - 1), self.layer(x, depth - 1)
            self.lines.append(f"{y} = torch.cat(({a}[:, :8], {b}[:, 8:]), dim=1)")
        elif kind == "split":
            a, b = self.name("a"), self.name("b")
            self.lines.append(f"{a}, {b} = {x}.chunk(2, dim=1)")
            self.lines.append(f"{y} = torch.cat(({b} * {a}.sigmoid(), {a}), dim=1)")
        else:
            return self.leaf(x)
        return y


_RESULTS = (
    "return {x}.square().mean()",
    "return {x}",
    'return {{"out": {x}, "half": {x}[:, :8], "calls": self.calls.clone()}}',
    "return {x}.mean(), ({x}, None)",
    "return {x}.t(), {x}[0], {x}.argmax(1), {x} > 0",
    "return [{x}, x, {x}, {x}.detach(), 3]",
    "return {x}.double().mean(), x.view(-1), self.shared.weight",
)


@st.composite
def sources(draw: st.DrawFn, rows: int = 8, leaves: Mapping[str, tuple[str, str]] = LEAVES) -> str:
    """Draw the source of a model file."""
    writer = _Writer(draw, leaves)
    writer.modules = [
        "self.shared = nn.Linear(16, 16)",
        'self.register_buffer("calls", torch.zeros(()))',
    ]
    x = "h"
    for _ in range(draw(st.integers(2, 7))):
        x = writer.layer(x, 2)
    frozen = draw(st.booleans())
    result = draw(st.sampled_from(_RESULTS)).format(x=x)
    return _SOURCE.format(
        modules=_indented(writer.modules),
        lines=_indented(["h = self.first(x)", *writer.lines, result]),
        rows=rows,
        frozen="        self.shared.weight.requires_grad_(False)\n" if frozen else "",
        grad=draw(st.sampled_from(["", ", requires_grad=True"])),
    )


def _indented(lines: list[str]) -> str:
    return "".join(f"        {line}\n" for line in lines)


_SOURCE = """\
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.abs().sqrt()

    @staticmethod
    def backward(ctx, d: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return d * x.sign() * 0.5


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
{modules}{frozen}
    def forward(self, x: Tensor):
{lines}

def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn({rows}, 16{grad}),)
"""
