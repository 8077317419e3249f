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


NORM = "self.a = nn.BatchNorm1d(8)\nself.b = nn.Linear(8, 8)"
DROP = "self.a = nn.Sequential(nn.Linear(8, 8), nn.Dropout())\nself.b = nn.Linear(8, 8)"
FROZEN = f"{INIT}\nself.a.requires_grad_(False)"
# the model, how it is checkpointed, and what is said; "" where it is planned
CHANGING = {
    "draws others": (DROP, "use_reentrant=False, preserve_rng_state=False", "draws random numbers"),
    "draws the same": (DROP, "use_reentrant=False", ""),
    "draws nothing": (INIT, "use_reentrant=False, preserve_rng_state=False", ""),
    "BatchNorm": (NORM, "use_reentrant=False", r"writes into a tensor.*\(BatchNorm into its"),
    "BatchNorm without statistics": (
        NORM.replace("(8)", "(8, track_running_stats=False)", 1),
        "use_reentrant=False",
        "",
    ),
    "writes into what it gets": (
        "self.a = nn.ReLU(True)\nself.b = nn.Linear(8, 8)",
        "use_reentrant=False",
        "writes into a tensor",
    ),
    "no gradient comes in": (INIT, "use_reentrant=True", "gives the parameters inside no gradient"),
    "no gradient, none needed": (FROZEN, "use_reentrant=True", ""),
}


@pytest.mark.limit(
    "a checkpoint in `forward` that changes numbers: around BatchNorm in training, around dropout "
    "with `preserve_rng_state=False`, `use_reentrant=True` where no input of it requires grad",
    "refused with your line and what to do; others are left out",
)
@pytest.mark.parametrize(("init", "how", "says"), CHANGING.values(), ids=CHANGING)
def test_checkpoints_that_change_numbers_are_refused(
    tmp_path: Path, init: str, how: str, says: str
) -> None:
    """Planned without them, buffers were updated once, and the stream moved less."""
    text = source(init, f"return self.b(checkpoint(self.a, x, {how})).sum()", before=BEFORE)
    if not says:
        assert len(traced(tmp_path, text).left_out) == 1
        return
    line = line_of(text, "return self.b(checkpoint")
    with pytest.raises(TraceError, match=rf"net\.py:{line}: .*{says}"):
        traced(tmp_path, text)


def test_a_checkpoint_in_a_library_is_told_with_the_users_line(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    build = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def build_model():
    config = GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    model = GPT2LMHeadModel(config).train()
    model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    return model


def example_inputs():
    return {"input_ids": torch.arange(16).reshape(2, 8), "use_cache": False}
"""
    line = line_of(build, "GPT2LMHeadModel(config)")
    with pytest.raises(TraceError, match=rf"^net\.py:{line} \(in \w+\.py:\d+\): .*draws random"):
        traced(tmp_path, build)


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
    "torch's own backward of `nn.LSTM`, `nn.GRU`, `nn.RNN` and their cells",
    "forward runs again in its place (1.4 to 2.3 times the time of such a model), and that is said",
)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_the_backward_of_an_rnn_is_left_out(tmp_path: Path, kind: str) -> None:
    init = f"self.rnn = nn.ModuleList((nn.Linear(8, 8), nn.{kind}(8, 8)))"
    forward = "return self.rnn[1](self.rnn[0](x)[None])[0].sum()"
    (found,) = traced(tmp_path, source(init, forward)).left_out
    assert found == LeftOut(f"torch's backward of nn.{kind}", "rnn.1")


def test_an_rnn_in_steps_leaves_nothing_out(tmp_path: Path) -> None:
    """Of float64 eager has no kernel for an LSTM."""
    forward = "return self.rnn(x.double())[0].sum()"
    assert traced(tmp_path, source("self.rnn = nn.LSTM(8, 8).double()", forward)).left_out == ()
