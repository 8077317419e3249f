"""Planning runs the original's own step twice, where it fits into memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from remat_gen.capture.load.load import Loaded, load
from remat_gen.ir.errors import TraceError
from remat_gen.plan import original_step as original
from remat_gen.verification.peak import model_peak

NET = """\
import os
import torch
from torch import nn

CALLS = []


class Noise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        CALLS.append(1)
        return g * {factor}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(Noise.apply(self.lin(x))).square().sum()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(4, 8),)
"""


OWN = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.randn(4, 4)) for _ in range(2))

    def forward(self, x):
        {body}


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(8, 4, requires_grad=True),)
"""


def loaded_with(folder: Path, factor: str) -> Loaded:
    path = folder / "net.py"
    path.write_text(NET.format(factor=factor), encoding="utf-8")
    return load(path, None, None, "cpu")


def test_nothing_is_said_of_a_step_that_repeats_itself(tmp_path: Path) -> None:
    loaded = loaded_with(tmp_path, "1.0")
    before = {name: t.clone() for name, t in loaded.model.state_dict().items()}
    loaded.model.lin.weight.grad = kept = torch.ones(8, 8)
    stream = torch.get_rng_state()
    assert original.run_twice(loaded, 1000).said == ""
    assert loaded.model.lin.weight.grad is kept
    assert torch.equal(torch.get_rng_state(), stream)
    after = loaded.model.state_dict()
    assert all(torch.equal(after[name], t) for name, t in before.items())


def test_a_step_that_does_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"does not repeat itself: gradients: lin\.weight"):
        original.run_twice(loaded_with(tmp_path, "len(CALLS)"), 1000)


def test_last_bits_are_said(tmp_path: Path) -> None:
    found = original.run_twice(loaded_with(tmp_path, "(1 + 2e-7 * len(CALLS))"), 1000)
    assert found.said.startswith("does not repeat itself to the bit: gradients: lin.")


def test_a_step_that_fails_is_said(tmp_path: Path) -> None:
    found = original.run_twice(loaded_with(tmp_path, "[][1]"), 1000)
    assert found.said == "has a step of its own that fails: IndexError: list index out of range"
    assert found.peak_bytes is None


def test_a_step_that_does_not_fit_is_not_run(tmp_path: Path) -> None:
    found = original.run_twice(loaded_with(tmp_path, "[][1]"), 1 << 60)
    assert found.said.startswith("was not run twice: it needs ")
    assert found.peak_bytes is None


def test_without_values_there_is_nothing_to_run(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(NET.format(factor="[][1]"), encoding="utf-8")
    assert original.run_twice(load(path, None, None, "cpu", fake=True), 1000) == original.Runs()


MAKES = {
    "gradients in one memory": "return torch.cat([self.a, self.b]).flatten() + x.flatten()",
    "a buffer, by way of more": """
        if not hasattr(self, "table"):
            large = torch.randn(512, 512) @ torch.ones(512, 512)
            self.register_buffer("table", 0 * large[:8, :4], persistent=False)
        return self.a.exp().sum() + self.table.sum() + x.sum()""",
}


@pytest.mark.parametrize("body", MAKES.values(), ids=MAKES)
def test_what_a_first_step_leaves_is_none_of_the_second(tmp_path: Path, body: str) -> None:
    path = tmp_path / "net.py"
    path.write_text(OWN.format(body=body), encoding="utf-8")
    loaded = load(path, device="cpu")
    found = original.run_twice(loaded, 1000)
    assert found.said == ""
    alone = model_peak(loaded.model, loaded.args, loaded.kwargs, loaded.device)
    assert found.peak_bytes == alone.peak_bytes < 1 << 20


def test_a_gradient_of_minus_zero_repeats_itself(tmp_path: Path) -> None:
    loaded = loaded_with(tmp_path, "-0.0")
    assert original.run_twice(loaded, 1000).said == ""


@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("name", ["resnet", "gpt", "unet"])
def test_its_peak_is_that_of_a_second_step(name: str, in_flight: int) -> None:
    loaded = load(Path(__file__).parents[2] / "examples" / f"{name}.py", device="cpu")
    args, kwargs = loaded.args, loaded.kwargs
    for leaf in args:
        leaf.requires_grad_(leaf.is_floating_point())
    found = original.run_twice(loaded, 1000, in_flight=in_flight)
    assert found.said == ""
    alone = model_peak(loaded.model, args, kwargs, loaded.device, in_flight=in_flight)
    assert found.peak_bytes == alone.peak_bytes


RESIZES = """\
import torch
from torch import nn


class Observer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(1))

    @torch.no_grad()
    def seen(self, x):
        found = x.detach().abs().amax(0)
        if self.scale.shape != found.shape:
            self.scale.resize_(found.shape)
        self.scale.copy_(found)

    def forward(self, x):
        self.seen(x)
        return x / self.scale


def build_model():
    return nn.Sequential(nn.Linear(8, 8), Observer())


def example_inputs():
    return (torch.randn(4, 8),)
"""


def test_a_buffer_that_the_first_step_resizes_is_named(tmp_path: Path) -> None:
    """The plan was for the second step, and each fresh model was refused in its first."""
    (path := tmp_path / "net.py").write_text(RESIZES, encoding="utf-8")
    words = r"the buffer 1\.scale another size in its first step, \[1\] → \[8\]"
    loaded = load(path, None, None, "cpu")
    with pytest.raises(TraceError, match=words):
        original.run_twice(loaded, 0)
    assert loaded.model[1].scale.tolist() == [1.0]
