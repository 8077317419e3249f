"""Operations write over an input that dies with them: the same bits, and never more memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from emitting import CPU, HEAD, Emitted, assert_bitwise, at_share, emit, keep_all

from remat_gen.verification.peak import model_peak

MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)
        self.second = nn.Linear(32, 32)
        self.large = nn.Linear(32, 256)

    def forward(self, x):
{forward}
        return self.large(y).square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(8, 32),)
"""
# what forward does, and what is written over in it
WRITTEN_OVER = {
    "relu": ("y = F.relu(self.norm(self.first(x)))", ".relu_()"),
    "sum": ("y = F.relu(self.first(x)) + self.second(x)", ".add_("),
    "difference": ("y = self.second(x) - F.relu(self.first(x))", ".sub_("),
    "rows": (
        "y = torch.zeros_like(x)\nfor i in range(4):\n    y[:, i] = self.first(x)[:, i]",
        "select(1, 2), ",
    ),
    "a slice": (
        "y = self.second(x)\ny = y.slice_scatter(self.first(x)[:, :8], 1, 4, 12)",
        "write_part(",
    ),
    "mask": ("y = self.second(x).masked_fill(x > 0, 2.0)", ".masked_fill_("),
}
# and where nothing may be
LEFT = {
    "an input": "y = x + self.first(x).mean()",
    "read again": "h = self.norm(self.first(x))\ny = F.relu(h) + self.second(h)",
    "narrower than the result": "y = self.first(x)[:1] + x",
    "a view of a parameter": "y = F.relu(self.first.weight[:8])",
    "handed on by its maker": "y = F.relu(F.dropout(x, 0.0))",
    "of another type": "y = (self.first(x) > 0) + x",
    "a whole that is read again": "h = self.second(x)\n"
    "y = h.slice_scatter(self.first(x)[:, :8], 1, 4, 12) * h",
    "a part of itself": "h = self.second(x)\ny = h.slice_scatter(h[:, :8], 1, 4, 12)",
    "twice in the result": "h = self.norm(self.first(x))\ny = h * h.T.sum()",
}


def emitted(folder: Path, forward: str, share: float | None = None) -> Emitted:
    lines = "\n".join(" " * 8 + line for line in forward.splitlines())
    choose = keep_all if share is None else at_share("rotor", share)
    return emit(folder, HEAD + MODEL.format(forward=lines), choose)


def forward_of(made: Emitted) -> str:
    """Return the planned forward of the blocks, without the user's own text."""
    return made.text.partition("class PlannedBlock")[2].partition("def backward")[0]


@pytest.mark.parametrize("name", WRITTEN_OVER)
def test_a_dying_input_is_written_over(tmp_path: Path, name: str) -> None:
    forward, method = WRITTEN_OVER[name]
    made = emitted(tmp_path, forward)
    assert method in made.text.partition("what they keep -")[2]
    assert_bitwise(made)


@pytest.mark.parametrize("name", LEFT)
def test_what_is_needed_is_left_alone(tmp_path: Path, name: str) -> None:
    made = emitted(tmp_path, LEFT[name])
    forward = [line for line in forward_of(made).splitlines() if "=" in line]
    assert not any(re.search(r"\by = (.*_\(|write_part)", line) for line in forward)
    assert_bitwise(made)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_peak_is_the_predicted_one(tmp_path: Path, share: float) -> None:
    """What sets the peak keeps to new memory: written over, it would make the peak lower."""
    made = emitted(tmp_path, "y = F.relu(self.norm(self.first(x))) + self.second(x)", share)
    measured = model_peak(made.planned.model, made.loaded.args, made.loaded.kwargs, CPU)
    assert measured.peak_bytes == made.peak_bytes
    assert_bitwise(made)


def test_two_forwards_before_two_backwards(tmp_path: Path) -> None:
    made = emitted(tmp_path, "y = F.relu(self.norm(self.first(x))) + self.second(x)")
    x = made.loaded.args[0]
    gradients = []
    for model in (made.loaded.model, made.planned.model):
        losses = [model(x), model(2 * x)]
        for loss in losses:
            loss.backward()
        gradients.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_a_factor_of_another_type_comes_first(tmp_path: Path) -> None:
    """In 16 bits `scale * h` rounds `scale` first; `h.mul_(scale)` would use it whole."""
    text = HEAD + MODEL.format(forward="        y = self.scale * self.first(x)")
    text = text.replace("self.norm =", "self.register_buffer('scale', SCALE)\n        self.norm =")
    text = text.replace("class Net", "SCALE = torch.tensor(5.6568542)\n\n\nclass Net", 1)
    text = text.replace(
        "return Net()", "net = Net().bfloat16()\n    net.scale = SCALE.clone()\n    return net"
    )
    text = text.replace("torch.randn(8, 32)", "torch.randn(8, 32).bfloat16()")
    assert_bitwise(emit(tmp_path, text, keep_all))


KEPT: dict[int, torch.Tensor] = {}


@torch.library.custom_op("rematgentests::embedding", mutates_args=())
def embedding(x: torch.Tensor) -> torch.Tensor:
    """Hand on what is kept, under the name of an operator that makes new memory."""
    return KEPT.setdefault(0, torch.ones(8, 32))


@embedding.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _straight_through(_ctx: object, gradient: torch.Tensor) -> torch.Tensor:
    return gradient


embedding.register_autograd(_straight_through)


def test_what_a_custom_operator_hands_on_is_left_alone(tmp_path: Path) -> None:
    made = emitted(
        tmp_path, "y = self.first(torch.ops.rematgentests.embedding(self.second(x)).sin())"
    )
    assert ".sin_()" not in made.text
    assert_bitwise(made)


def test_an_output_may_be_written_by_the_user(tmp_path: Path) -> None:
    text = MODEL.replace("return self.large(y).square().mean()", "return y")
    forward = "        y = self.first(x) + self.second(x)"
    text = HEAD + text.format(forward=forward).replace("randn(8, 32)", "randn(2, 4, 32)")
    made = emit(tmp_path, text, keep_all)
    outputs = [m(made.loaded.args[0]).mul_(2) for m in (made.loaded.model, made.planned.model)]
    assert torch.equal(*outputs)
