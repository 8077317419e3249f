"""What backward reads of a model or writes into it is refused: it is no part of a trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from tracing import traced

from remat_gen.ir.errors import TraceError

_HEAD = """
import torch
from torch import nn
from torch.autograd import Function


class Track(Function):
    @staticmethod
    def forward(ctx, x, stat):
        ctx.stat = stat
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        {backward}
        return g, None


class Two(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads({materialize})
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        return a * 5 if b is None else a * 2 + b * 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))
        self.part = self.scale[:2]
        {more}

    def tracked(self, gradient):
        self.scale.add_(gradient.mean(0))

    def forward(self, x):
        {forward}


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(4, 4),)
"""


def _source(forward: str, backward: str = "pass", materialize: str = "True") -> str:
    lines = forward.replace("\n", "\n        ")
    two = 'self.register_buffer("two", self.scale[2:])' if "self.two" in forward else ""
    return _HEAD.format(forward=lines, backward=backward, materialize=materialize, more=two)


_HOOK = "h = self.a(x)\n{before}h.register_hook(lambda g: g * {scale})\nreturn self.b(h).sum()"
_TRACK = "return self.b(Track.apply(self.a(x), self.scale)).sum()"
_TWICE = "u, v = Two.apply(self.a(x))\nreturn self.b(u){rest}"
_PART = "{write}\nreturn self.b(self.a(x)[:, :2].mul(self.part).sum() + x).sum()"
REFUSED = {
    "a buffer that a hook reads": (
        _source(_HOOK.format(before="", scale="self.scale")),
        r"backward reads the buffer self\.scale from the model.*`scale = self\.scale`",
    ),
    "a buffer that a function writes into": (
        _source(_TRACK, "ctx.stat.mul_(0.9).add_(g.mean(0))"),
        "backward writes into scale",
    ),
    "a buffer that a hook writes into": (
        _source("h = self.a(x)\nh.register_hook(self.tracked)\nreturn self.b(h).sum()"),
        "backward writes into a tensor of the module",
    ),
    "a part of a buffer that is a buffer": (
        _source("self.scale.add_(1)\nreturn self.b(self.a(x) * self.scale).sum() + self.two.sum()"),
        "two has the memory of another buffer",
    ),
    "a part of a buffer that forward writes into": (
        _source(_PART.format(write="self.scale.add_(1)")),
        r"forward writes into self\.scale, and reads another attribute that has its memory",
    ),
    "gradients that may not come": (
        _source(_TWICE.format(rest=", v"), materialize="False"),
        r"set_materialize_grads\(False\).*return the loss alone",
    ),
}
PLANNED = {
    "a buffer that forward reads for a hook": _source(
        _HOOK.format(before="s = self.scale\n", scale="s")
    ),
    "a buffer that a function reads": _source(_TRACK, "g = g * ctx.stat"),
    "a part of a buffer that stays": _source(_PART.format(write="pass")),
    "gradients of which one does not come": _source(
        _TWICE.format(rest=".sum()"), materialize="False"
    ),
    "gradients that come as zeros": _source(_TWICE.format(rest=", v")),
}


TOLD = {
    "a buffer that a hook reads": (
        "buffers that a hook or an autograd function reads from the model in backward",
        "refused with its name; read it in `forward`, and let backward use that",
    ),
    "a buffer that a function writes into": (
        "buffers and inputs that backward writes into",
        "refused with its name; write in `forward`, or after the step",
    ),
    "a buffer that a hook writes into": (
        "tensors of a module that a hook writes into in backward",
        "refused with your line; write in `forward`, or after the step",
    ),
    "a part of a buffer that is a buffer": (
        "buffers that share memory, where `forward` writes into one of them",
        "refused with the name of one; keep one buffer",
    ),
    "a part of a buffer that forward writes into": (
        "an attribute that is part of a buffer that `forward` writes into (`self.row = self.s[0]`)",
        "refused with the buffer's name; read that part of it in `forward`",
    ),
    "gradients that may not come": (
        "`set_materialize_grads(False)` in an autograd function, of a model with several outputs",
        "refused; return the loss alone",
    ),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.limit(*TOLD[case])) for case in REFUSED]
)
def test_it_is_refused(case: str, tmp_path: Path) -> None:
    text, says = REFUSED[case]
    with pytest.raises(TraceError, match=says):
        traced(tmp_path, text)


@pytest.mark.parametrize("case", PLANNED)
def test_its_neighbours_are_planned(case: str, tmp_path: Path) -> None:
    assert traced(tmp_path, PLANNED[case]).graph.operations
