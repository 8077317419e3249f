"""Whole steps, bitwise: outputs, gradients, buffers, inputs and the random stream."""

from __future__ import annotations

import re

import pytest
import torch
from pairs import Pair, make_pair, make_pair_of
from sources import model_source
from steps import assert_right, run_steps

from remat_gen.ir.steps import runs_in

STRATEGIES = [
    ("mixed", "1GB", "per-layer"),
    ("mixed", "66%", "rotor"),
    ("mixed", "60%", "rockmate"),
    ("deep", "30%", "rotor"),
    ("deep", "1GB", "per-layer"),
]


@pytest.mark.parametrize(("name", "limit", "strategy"), STRATEGIES)
def test_every_strategy_steps_as_eager_does(name: str, limit: str, strategy: str) -> None:
    assert_right(make_pair(name, limit, strategy), steps=3)


def test_blocks_rerun_operations_of_other_blocks(deep: Pair) -> None:
    assert deep.reruns_across


SQUARE = "torch.randn(6, 8)"
ADJOINT = """
class Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, f, y, *params):
        ctx.f = f
        with torch.no_grad():
            out = y + f(y)
        ctx.save_for_backward(y, *params)
        return out

    @staticmethod
    def backward(ctx, d):
        y, *params = ctx.saved_tensors
        with torch.enable_grad():
            y = y.detach().requires_grad_()
            out = y + ctx.f(y)
        return None, *torch.autograd.grad(out, (y, *params), d)
"""
CASES = {
    "a function whose backward runs a layer again": model_source(
        "y = self.body(x)\n"
        "for _ in range(2):\n"
        "    y = Adjoint.apply(self.f, y, *self.f.parameters())\n"
        "return self.head(y)",
        prelude=ADJOINT,
        init="self.f = nn.Sequential(nn.Linear(8, 8), nn.Tanh())",
    ),
    "counts of indices": model_source(
        "y = self.body(x)\n"
        "counts = torch.bincount(y.detach().topk(2).indices.flatten(), minlength=8)\n"
        "with torch.no_grad():\n"
        "    self.load.lerp_(counts.float(), 0.1)\n"
        "return self.head(y * counts)",
        init="self.register_buffer('load', torch.zeros(8))",
    ),
    "whole numbers drawn into tensors": model_source(
        "y = self.body(x)\n"
        "cut = torch.empty([], dtype=torch.int64).random_(1, 8)\n"
        "self.last.random_(3)\n"
        "noise = torch.empty(x.shape).random_(-2, 5) * self.last.sum()\n"
        "return self.head(y * (torch.arange(8) < cut) + noise)",
        init="self.register_buffer('last', torch.zeros(4, dtype=torch.int32))",
    ),
    "gradients of each sample, with a number": model_source(
        "y = self.body(x)\n"
        "one = torch.func.grad(lambda w, a: 0.5 * (w @ a).square().mean())\n"
        "return self.head(y) + torch.func.vmap(one, (None, 0))(self.head.weight, y).sum((0, 2))",
    ),
    "batch norm": model_source(
        "return self.head(self.bn(self.layers[1](self.bn(self.layers[0](x)))))",
        init="self.bn = nn.BatchNorm1d(8)",
    ),
    "moving average": model_source(
        "self.ema.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)\n"
        "return self.head(self.body(x - self.ema))",
        init="self.register_buffer('ema', torch.zeros(8))",
    ),
    "sums with a factor": model_source(
        "h = self.body(x)\n"
        "h.add_(x, alpha=0.1)\n"
        "h.addcmul_(x, x, value=0.1)\n"
        "h.addcdiv_(x, x.exp(), value=0.1)\n"
        "return self.head(torch.addcdiv(h, x, x.exp(), value=0.1))"
    ),
    "an input changed in place": model_source("x.mul_(2)\nreturn self.head(self.body(x))"),
    "dropout between the layers of an RNN": model_source(
        "return self.head(self.join(self.rnn(self.body(x))[0]))",
        init="self.rnn = nn.RNN(8, 8, 3, dropout=0.4, bidirectional=True)\n"
        "self.join = nn.Linear(16, 8)",
    ),
    "dropout between the layers of a GRU": model_source(
        "y, last = self.rnn(self.body(x)[None])\nreturn self.head(self.join(y[0] + last.sum(0)))",
        init="self.rnn = nn.GRU(8, 32, 2, dropout=0.4, batch_first=True)\n"
        "self.join = nn.Linear(32, 8)",
    ),
    "random operations": model_source(
        "h = self.body(x)\n"
        "h = self.layers[1](h + torch.rand_like(h)) * torch.bernoulli(torch.full_like(h, 0.5))\n"
        "return self.head(h)"
    ),
    "attention with dropout": model_source(
        "h = self.body(x).view(1, 6, 2, 4).transpose(1, 2)\n"
        "h = F.scaled_dot_product_attention(h, h, h, dropout_p=0.1, is_causal=True)\n"
        "return self.head(h.transpose(1, 2).reshape(6, 8))"
    ),
    "a layer used three times": model_source(
        "return self.head(self.layers[0](self.body(self.layers[0](x))))"
    ),
    "autocast inside": model_source(
        "with torch.autocast('cpu', torch.bfloat16):\n"
        "    h = self.head(self.body(x))\n"
        "return h.float().mean()"
    ),
    "a cell of a GRU whose states are read": model_source(
        """
        h, states = self.body(x), []
        for t in range(3):
            h = self.cell(x, h)
            states.append(h)
        return self.head(torch.stack(states).sin())
        """,
        init="self.cell = nn.GRUCell(8, 8)",
    ),
    "a diagonal of a slice": model_source(
        """
        y = self.head(self.body(x))
        alike = (y @ y.t()).clone()
        alike[:, 0:6].fill_diagonal_(-9.0)
        return alike.logsumexp(1)
        """
    ),
    "constants": model_source(
        "h = self.head(self.body(x))\nreturn h * torch.tensor([1.0, 2.0, 3.0, 4.0])"
    ),
    "frozen first layer": model_source(
        "return self.head(self.body(x))", init="self.layers[0].requires_grad_(False)"
    ),
    "frozen last layer": model_source(
        "return self.head(self.body(x))", init="self.layers[1].requires_grad_(False)"
    ),
    "frozen embedding": model_source(
        "return self.head(self.body(self.embed(x)))",
        init="self.embed = nn.Embedding(9, 8).requires_grad_(False)",
        inputs="(torch.randint(9, (6,)),)",
    ),
    "an input that needs a gradient": model_source(
        "return self.head(self.body(x))", inputs="(torch.randn(6, 8, requires_grad=True),)"
    ),
    "a parameter used detached": model_source(
        "return self.head(self.body(x)) * self.scale.detach()",
        init="self.scale = nn.Parameter(torch.full((4,), 3.0))",
    ),
    "an argument called as a parameter, another as a buffer": model_source(
        "self.mean.mul_(0.9)\nh = torch.tanh(self.head(self.body(x)) * self.scale + scale)\n"
        "return (h * mean * self.mean).square().mean()",
        arguments="self, x: Tensor, scale: Tensor, mean: Tensor",
        init="self.scale = nn.Parameter(torch.full((4,), 3.0))\n"
        "self.register_buffer('mean', torch.ones(4))",
        inputs="(torch.randn(6, 8), torch.randn(4, requires_grad=True), torch.rand(4))",
    ),
    "bilinear upsampling": model_source(
        "x = self.body(x)[None, None]\n"
        "x = F.interpolate(x, scale_factor=2.5, mode='bilinear')\n"
        "return self.head(x[..., :8])",
    ),
    "nested inputs": model_source(
        "return {'o': self.head(self.body(batch['x'][0])) * scale}",
        arguments="self, batch: dict[str, Any], scale: float = 1.0, *, flag: bool = False",
        inputs="{'batch': {'x': [torch.randn(6, 8)], 'y': torch.ones(2)}, 'scale': 2.0}",
    ),
}


@pytest.mark.parametrize("source", CASES.values(), ids=CASES)
def test_step_is_eagers(source: str) -> None:
    assert_right(make_pair_of(source, "1GB", "per-layer"))


def test_dropout_is_rerun_from_its_recorded_state(deep: Pair) -> None:
    calls = re.findall(r"rerun_random\(\s*(\S+),\s*(\S+),", deep.text)
    assert calls
    assert all(s.endswith("_rng") and f == "draw_mask" for s, f in calls)


def test_batch_norm_counts_a_step_once_also_when_it_runs_again(mixed: Pair) -> None:
    first = mixed.text.index("# re-run")
    backward = mixed.text[mixed.text.rindex("def backward(", 0, first) :]
    assert "batch_norm_forward(" in backward.partition("def forward(")[0]
    _, planned = mixed.models()
    run_steps(planned, mixed, steps=2)
    counts = [b for n, b in planned.named_buffers() if "num_batches" in n or n == "calls"]
    assert len(counts) == 5
    assert all(count == 2 for count in counts)


def test_unused_and_frozen_parameters_get_no_gradient(mixed: Pair) -> None:
    _, planned = mixed.models()
    run_steps(planned, mixed)
    without = {n for n, p in planned.named_parameters() if p.grad is None}
    frozen = {n for n, p in planned.named_parameters() if not p.requires_grad}
    assert without == frozen | {"unused.weight", "unused.bias"}


def test_nothing_is_computed_for_the_gradients_of_frozen_parameters() -> None:
    pair = make_pair_of(CASES["frozen first layer"], "1GB", "per-layer")
    made = re.findall(r"\bg\.(\w+_weight)\b[^=\n]* = ", pair.text)
    assert sorted(made) == ["down_weight", "head_weight", "up_weight"]
    assert not any("layers.0" in operation for operation in _backward_operations(pair))


def _backward_operations(pair: Pair) -> set[str]:
    forward, backward = (
        {name for s in pair.plan.schedule if s.backward is late for name in runs_in(s.steps)}
        for late in (False, True)
    )
    return backward - forward


def test_tied_weights_stay_one(mixed: Pair) -> None:
    _, planned = mixed.models()
    assert planned.head.weight is planned.embed.weight
    run_steps(planned, mixed)
    assert planned.embed.weight.grad is not None


def test_dropout_masks_differ_from_step_to_step(deep: Pair) -> None:
    _, planned = deep.models()
    args, _ = deep.inputs()
    torch.manual_seed(0)
    assert not torch.equal(planned(*args), planned(*args))
