"""A forward that saves memory itself is planned without that, and the plan says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from tracing import line_of, source, traced

from remat_gen.capture.refuse.left_out import LeftOut
from remat_gen.ir.errors import TraceError

INIT = "self.a = nn.Linear(8, 8)\nself.b = nn.Linear(8, 8)"
BEFORE = (
    "from torch.utils.checkpoint import checkpoint\n"
    "from torch.autograd.graph import save_on_cpu, saved_tensors_hooks\n"
)
PLAIN = "return self.b(torch.tanh(self.a(x))).sum()"
CHECKPOINTED = "return checkpoint(self.b, torch.tanh(self.a(x)), use_reentrant={}).sum()"
ON_HOST = f"with save_on_cpu():\n    {PLAIN}"
ROUNDED = f"with saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()):\n    {PLAIN}"


@pytest.mark.parametrize(
    ("forward", "what"),
    [
        (CHECKPOINTED.format("False"), "torch.utils.checkpoint"),
        (CHECKPOINTED.format("True"), "torch.utils.checkpoint"),
        (ON_HOST, "save_on_cpu"),
    ],
)
def test_what_brings_the_same_values_back_is_left_out(
    tmp_path: Path, forward: str, what: str
) -> None:
    text = source(INIT, forward, before=BEFORE)
    found = traced(tmp_path, text)
    line = line_of(text, "checkpoint(self" if "checkpoint(" in forward else "with save_on_cpu")
    assert found.left_out == (LeftOut(what, f"net.py:{line}"),)
    plain = traced(tmp_path, source(INIT, PLAIN, before=BEFORE))
    assert plain.left_out == ()
    kernels = [operation.target for operation in found.graph.operations]
    assert kernels == [operation.target for operation in plain.graph.operations]


def test_each_is_named_once_with_its_first_line(tmp_path: Path) -> None:
    forward = (
        "x = checkpoint(self.a, x, use_reentrant=False)\n"
        "return checkpoint(self.b, x, use_reentrant=False).sum()"
    )
    text = source(INIT, forward, before=BEFORE)
    (found,) = traced(tmp_path, text).left_out
    assert found.where == f"net.py:{line_of(text, 'checkpoint(self.a')}"


@pytest.mark.limit(
    "`saved_tensors_hooks` in `forward` that may change what is saved (rounding, compression)",
    "refused with your line; `torch.utils.checkpoint` and `save_on_cpu` are left out",
)
def test_hooks_that_may_change_what_is_saved_are_refused(tmp_path: Path) -> None:
    """Their gradients were silently those of exact values."""
    text = source(INIT, ROUNDED, before=BEFORE)
    line = line_of(text, "with saved_tensors_hooks")
    with pytest.raises(TraceError, match=rf"net\.py:{line}: .*saved_tensors_hooks"):
        traced(tmp_path, text)


@pytest.mark.limit(
    "oneDNN's kernel, which eager runs for `nn.LSTM` on the CPU",
    "left out, and said: gradients within tolerance, other memory, three times the time",
)
def test_the_kernel_of_an_lstm_is_left_out(tmp_path: Path) -> None:
    """Eager took 2.5 times the memory that was called its own, and a third of the time."""
    init = "self.rnn = nn.ModuleList((nn.Linear(8, 8), nn.{}(8, 8)))"
    forward = "return self.rnn[1](self.rnn[0](x))[0].sum()"
    (found,) = traced(tmp_path, source(init.format("LSTM"), forward)).left_out
    assert found == LeftOut("oneDNN's kernel for nn.LSTM", "rnn.1")
    assert traced(tmp_path, source(init.format("GRU"), forward)).left_out == ()
