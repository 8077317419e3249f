"""Random small models as source text: a grammar of layers on `[8, 16]` and on images.

body  ::= layer*          layer ::= residual(layer) | concat(layer, layer) | split | leaf
leaf  ::= linear | norm | activation | dropout | attention | conv | shared linear | buffer
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

WIDTH = 16

_LEAVES = {
    "linear": ("nn.Linear(16, 16)", "{y} = self.{m}({x})"),
    "wide": ("nn.Linear(16, 64, bias=False)", "{y} = F.gelu(self.{m}({x})) @ self.{m}.weight"),
    "layernorm": ("nn.LayerNorm(16)", "{y} = self.{m}({x})"),
    "batchnorm": ("nn.BatchNorm1d(16)", "{y} = self.{m}({x})"),
    "dropout": ("nn.Dropout(0.3)", "{y} = self.{m}({x})"),
    "noise": ("", "{y} = {x} + 0.1 * torch.rand_like({x})"),
    "gelu": ("", "{y} = F.gelu({x})"),
    "relu_": ("nn.Linear(16, 16)", "{y} = self.{m}({x}).relu_()"),
    "attention": (
        "nn.Linear(16, 48)",
        "q, k, v = self.{m}({x}).view(-1, 4, 48).split(16, dim=2)\n"
        "{y} = ((q @ k.transpose(1, 2)).softmax(dim=-1) @ v).reshape(-1, 16)",
    ),
    "conv": (
        "nn.Conv1d(4, 4, 3, padding=1)",
        "{y} = self.{m}({x}.view(-1, 4, 16)).flatten(0, 1)",
    ),
    "shared": ("", "{y} = self.shared({x}).tanh()"),
    "counter": ("", "self.calls += 1\n{y} = {x} * 0.5"),
    "constant": ("", "{y} = {x} * torch.tensor([0.5, 2.0] * 8)"),
    "detached": ("", "{y} = {x} + {x}.detach().mean()"),
}


@dataclass(slots=True)
class _Writer:
    draw: st.DrawFn
    modules: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def leaf(self, x: str) -> str:
        kind = self.draw(st.sampled_from(sorted(_LEAVES)))
        module, text = _LEAVES[kind]
        m, y = self.name(kind.strip("_")), self.name("x")
        if module:
            self.modules.append(f"self.{m} = {module}")
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
)


@st.composite
def sources(draw: st.DrawFn, rows: int = 8) -> str:
    """Draw the source of a model file."""
    writer = _Writer(draw)
    writer.modules = [
        "self.shared = nn.Linear(16, 16)",
        'self.register_buffer("calls", torch.zeros(()))',
    ]
    x = "x"
    for _ in range(draw(st.integers(2, 7))):
        x = writer.layer(x, 2)
    frozen = draw(st.booleans())
    result = draw(st.sampled_from(_RESULTS)).format(x=x)
    return _SOURCE.format(
        modules=_indented(writer.modules),
        lines=_indented(["x = self.first(x)", *writer.lines, result]),
        rows=rows,
        frozen="        self.shared.weight.requires_grad_(False)\n" if frozen else "",
    )


def _indented(lines: list[str]) -> str:
    return "".join(f"        {line}\n" for line in lines)


_SOURCE = """\
import torch
import torch.nn.functional as F
from torch import Tensor, nn


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
    return (torch.randn({rows}, 16),)
"""
