"""What a model for a GPU that is not here makes on the host: draws are refused, with their line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tracing import source

from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.load.load import load_fake
from remat_gen.capture.trace.trace import Traced, trace_loaded
from remat_gen.ir.errors import TraceError

INIT = "self.lin, self.mask = nn.Linear(16, 16), None\nself.register_buffer('kept', torch.ones(16))"
INPUTS = "(torch.randn(4, 16),)"


def traced(folder: Path, forward: str) -> Traced:
    path = folder / "net.py"
    path.write_text(source(INIT, forward, INPUTS), encoding="utf-8")
    return trace_loaded(load_fake(path, None, None, AbsentDevice("cuda")))


DRAWN = {
    "torch.rand(4, 16).to(x.device)": "rand ",
    "torch.bernoulli(torch.full((4, 16), 0.8)).to(x.device)": "bernoulli ",
    "torch.empty(4, 16).bernoulli_(0.5).to(x.device)": "bernoulli ",
    "F.dropout(torch.ones(4, 16), 0.2).to(x.device)": "bernoulli ",
    "torch.rand_like(x.cpu() if x.is_cuda else torch.ones(4, 16)).to(x.device)": "rand_like ",
    "x[torch.randperm(4)]": "randperm ",
}


@pytest.mark.parametrize("drawn", DRAWN)
def test_a_draw_on_the_host_is_refused(drawn: str, tmp_path: Path) -> None:
    """Eager draws with the host's generator; the file for a target drew with the GPU's."""
    with pytest.raises(TraceError, match=r"draws on the host.*pass device=") as found:
        traced(tmp_path, f"y = self.lin(x)\ny = y * {drawn}\nreturn y.square().sum()")
    text = (tmp_path / "net.py").read_text(encoding="utf-8").splitlines()
    line = next(i for i, said in enumerate(text, 1) if drawn in said)
    assert str(found.value).startswith(f"net.py:{line}: {DRAWN[drawn]}")


def test_a_step_that_eager_cannot_do_there_is_left_to_it(tmp_path: Path) -> None:
    assert traced(tmp_path, "return (self.lin(x) + torch.arange(16.)).square().sum()").graph


def test_a_run_that_does_not_tell_is_refused(tmp_path: Path) -> None:
    """Else a draw behind what fails would go unseen."""
    forward = (
        "assert str(x.device) == 'cpu'\nreturn (self.lin(x) * torch.rand(16).to(x.device)).sum()"
    )
    with pytest.raises(TraceError, match="whether forward draws on the host cannot be told"):
        traced(tmp_path, forward)


CACHED = """
if self.mask is None:
    self.mask = torch.ones(16, device=x.device)
return (self.lin(x) * self.mask).square().sum()
"""


def test_a_cache_that_a_target_cannot_settle_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"forward keeps a tensor in self\.mask.*build_model"):
        traced(tmp_path, CACHED.strip())


MADE = {
    "there": "torch.rand(4, 16, device=x.device)",
    "like": "torch.rand_like(x)",
    "by a buffer": "torch.randn(16, device=self.kept.device)",
    "new": "x.new_empty(4, 16).normal_()",
    "dropout": "F.dropout(torch.ones_like(x), 0.2)",
    "a number": "torch.tensor(2.0)",
    "sent": "torch.arange(16.0).to(x.device)",
    "an index": "x[torch.arange(4)]",
}


@pytest.mark.parametrize("name", MADE)
def test_what_eager_can_is_traced(name: str, tmp_path: Path) -> None:
    graph = traced(tmp_path, f"return (self.lin(x) * {MADE[name]}).square().sum()").graph
    devices = {tensor.device for tensor in graph.tensors.values()}
    assert devices <= {"cuda:0", "cpu"}  # a generator's state is on the host


def test_the_model_is_left_as_it_was(tmp_path: Path) -> None:
    """Also by a refused one: a second trace finds the same devices."""
    path = tmp_path / "net.py"
    path.write_text(source(INIT, "return (self.lin(x) * torch.rand(16)).sum()", INPUTS), "utf-8")
    loaded = load_fake(path, None, None, AbsentDevice("cuda"))
    for _ in range(2):
        with pytest.raises(TraceError, match="draws on the host"):
            trace_loaded(loaded)
        state = (*loaded.model.parameters(), *loaded.model.buffers(), *loaded.args)
        assert {tensor.device for tensor in state} == {torch.device("cpu")}
