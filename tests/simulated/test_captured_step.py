"""A step as a CUDA graph equals eager's to the bit, whatever it draws again; or it is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from on_gpu_steps import SIMULATED
from recorded_graphs import Generator, Generators, Graph
from torch import Tensor, nn

import remat_gen
from remat_gen.capture.load.load import load
from remat_gen.ir.errors import UsageError

pytestmark = pytest.mark.cuda
NET = """
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.drop, self.norm = nn.Dropout(0.3), nn.BatchNorm1d(16)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.drop(torch.tanh(layer(self.drop(x))))
        return self.norm(x).square().mean()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(12, 16),)
"""
Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a simulated GPU record graphs, and Python see the generators as a capture leaves them."""
    torch.cuda.init()
    if not SIMULATED:
        return
    found = Generators()
    default = Generator(found, found.state, default=True)
    monkeypatch.setattr(torch.cuda, "default_generators", (default,))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: Graph(found))
    monkeypatch.setattr(torch.cuda, "graph", Graph.capture)


def step_of(model: nn.Module) -> Run:
    def step(x: Tensor) -> Tensor:
        loss: Tensor = model(x)
        loss.backward()
        return loss

    return step


def left_behind(model: nn.Module, loss: Tensor) -> list[Tensor]:
    gradients = [p.grad.cpu() for p in model.parameters() if p.grad is not None]
    buffers = [b.cpu() for b in model.buffers()]
    return [loss.detach().cpu(), *gradients, *buffers, torch.cuda.get_rng_state()]


def steps(model: nn.Module, run: Run, reset: tuple[bool, ...]) -> Iterator[list[Tensor]]:
    """Take steps on other inputs each, of one stream; gradients are reset before some of them."""
    torch.cuda.manual_seed(7)
    for at, is_reset in enumerate(reset):
        if is_reset:
            model.zero_grad()
        x = torch.randn(12, 16, generator=torch.Generator().manual_seed(at)).cuda()
        yield left_behind(model, run(x))


@pytest.mark.parametrize("recompute", [(), ("drop*",), ("*",)], ids=lambda r: "".join(r) or "none")
def test_replays_equal_eager_steps(recompute: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(NET, encoding="utf-8")
    made = remat_gen.generate(path, device="cuda", budget="100%", recompute=list(recompute))
    assert made.output and ("rerun_random(" in made.text) == bool(recompute)
    eager, planned = load(path, device="cuda").model, load(made.output, device="cuda").model
    planned.load_state_dict(eager.state_dict())
    before = [b.clone() for b in planned.buffers()]
    x = torch.randn(12, 16).cuda()
    run = remat_gen.capture_step(planned, step_of(planned), x)
    assert all(p.grad is None for p in planned.parameters())
    assert all(map(torch.equal, before, planned.buffers()))  # warm-ups updated nothing
    resets = (True, True, False, True, False)
    wanted = list(steps(eager, step_of(eager), resets))
    found = list(steps(planned, run, resets))
    for one, other in zip(wanted, found, strict=True):
        assert len(one) == len(other) and all(map(torch.equal, one, other))


def refused(model: nn.Module, step: Run, x: Tensor) -> str:
    with pytest.raises(UsageError) as caught:
        remat_gen.capture_step(model, step, x)
    return str(caught.value)


def test_what_a_graph_cannot_repeat_is_refused() -> None:
    model = nn.Linear(4, 4).cuda()
    x = torch.randn(2, 4).cuda()
    state = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def reads(x: Tensor) -> None:
        model(x).sum().backward()
        float(x.sum())

    def draws(x: Tensor) -> None:
        (model(x) * torch.rand(4).to(x.device)).sum().backward()

    def trains(x: Tensor) -> None:
        model(x).sum().backward()
        optimizer.step()

    assert "_local_scalar_dense" in refused(model, reads, x)
    assert "test_captured_step.py:" in refused(model, reads, x)
    assert "has a tensor on the host" in refused(model, draws, x)
    assert "the step changes parameters" in refused(model, trains, x)
    assert "an input that requires grad" in refused(model, reads, x.requires_grad_())
    assert "a step on cpu cannot be captured" in refused(nn.Linear(4, 4), reads, torch.ones(2, 4))
    assert all(map(torch.equal, state, model.parameters()))


def test_what_changed_since_is_refused() -> None:
    model = nn.Linear(4, 4).cuda()
    run = remat_gen.capture_step(
        model, step_of(nn.Sequential(model, _Sum())), torch.ones(2, 4).cuda()
    )
    run(torch.ones(2, 4).cuda())
    with pytest.raises(
        UsageError, match=r"captured for float32\[2, 4\], and is given float32\[3, 4\]"
    ):
        run(torch.ones(3, 4).cuda())
    for change in (model.eval, lambda: model.weight.requires_grad_(False)):
        change()
        with pytest.raises(UsageError, match="the model has changed since"):
            run(torch.ones(2, 4).cuda())
        model.train(), model.requires_grad_(True)
    run(torch.ones(2, 4).cuda())
    model.weight.data = model.weight.data.clone()
    with pytest.raises(UsageError, match="the model has changed since"):
        run(torch.ones(2, 4).cuda())


class _Sum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.square().sum()
