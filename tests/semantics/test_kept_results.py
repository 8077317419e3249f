"""Tensors that forward keeps on the model for others: results of a planned step as well."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from pairs import Pair, import_file, make_pair_of
from sources import model_source
from steps import verified
from torch import nn

import remat_gen

EXPERTS = """
class Experts(Layer):
    def forward(self, x: Tensor) -> Tensor:
        share = self.up(x).softmax(-1)
        self.balance = share.mean(0).square().sum() * 16
        self.share = share.detach()
        self.rows = share.mean(0)
        self.hottest = share.argmax(-1)
        self.told = share.mean().item()
        self.wide = x.repeat(1024, 1)
        return x + self.drop(self.down(F.gelu(share)))
"""
MANY = "self.layers = nn.ModuleList(Experts() for _ in range(6))"
LAYERS = "self.layers = nn.ModuleList(Experts() for _ in range(4))"
LOGITS = "return self.head(self.body(x))"
LOSS = (
    "y = self.head(self.body(x)).square().mean()\n"
    "return y + sum(layer.balance for layer in self.layers)"
)
SMALL, LARGE = ("balance", "share", "rows", "hottest"), ("told", "wide")


def experts(forward: str, layers: str = LAYERS) -> str:
    text = model_source(forward, init=layers)
    return text.replace("\n\nclass Model", f"\n{EXPERTS}\n\nclass Model")


@pytest.fixture(scope="module")
def logits() -> Pair:
    return make_pair_of(experts(LOGITS), "lowest", "per-layer")


def step(model: nn.Module, args: Any, share: float) -> dict[str, Any]:
    """Run a step whose loss adds a share of what the layers keep; return what it leaves."""
    model.zero_grad()
    torch.manual_seed(3)
    loss = model(*args).square().mean()
    if share:
        loss = loss + share * sum(layer.balance for layer in model.layers)
    loss.backward()
    kept = {f"{n}.{k}": getattr(m, k) for n, m in model.layers.named_children() for k in SMALL}
    return kept | {n: p.grad for n, p in model.named_parameters()} | {"loss": loss.detach()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    pairs = ((one[name], other[name]) for name in one.keys() | other.keys())
    return all(b is None if a is None else torch.equal(a, b) for a, b in pairs)


def test_a_loss_that_adds_what_layers_keep(logits: Pair) -> None:
    """A mixture of experts' balance, which the training loop adds: in some steps, not in others."""
    original, planned = logits.models()
    for share in (0.1, 0.0, 0.5):
        args = logits.inputs()[0]
        assert same(step(original, args, share), step(planned, args, share))


def test_layers_that_keep_something_are_one_class() -> None:
    """What a layer keeps leaves with its own block: from the last one each had its own class."""
    pair = make_pair_of(experts(LOGITS, MANY), "60%", "per-layer")
    assert pair.text.count("keeps = ") < 6
    assert "for i in range(" in pair.text
    original, planned = pair.models()
    args = pair.inputs()[0]
    assert same(step(original, args, 0.1), step(planned, args, 0.1))


def test_a_smaller_batch(logits: Pair) -> None:
    original, planned = logits.models()
    args = (torch.randn(3, 8),)
    assert same(step(original, args, 0.1), step(planned, args, 0.1))
    assert planned.layers[0].share.shape == (3, 16)


@pytest.mark.limit(
    "what `forward` keeps on the model and is no small tensor (4,096 numbers), plain value (a "
    "shape, a dtype) or container of such, or follows from lengths by more than arithmetic "
    "(`n > 4`, a set of them)",
    "None behind a planned step; the summary names it: return it, or keep less of it",
)
def test_what_is_not_kept_is_none_behind_a_planned_step(logits: Pair) -> None:
    """Numbers of an evaluation do not stand there as if they were of the step."""
    _, planned = logits.models()
    args = logits.inputs()[0]
    planned.eval()(*args)
    assert all(getattr(planned.layers[0], name) is not None for name in LARGE)
    planned.train()(*args)
    assert all(getattr(layer, name) is None for layer in planned.layers for name in LARGE)


def test_verify_compares_them(logits: Pair) -> None:
    original, planned = logits.models()
    args, kwargs = logits.inputs()

    def row() -> tuple[bool | None, str]:
        return verified(original, planned, args, kwargs, "attributes")

    assert row() == (True, "32 of 32 bitwise")
    hook = planned.register_forward_hook(lambda m, *_: m.layers[1].share.mul_(2))
    with contextlib.closing(_Removed(hook)):
        ok, detail = row()
    assert not ok
    assert "layers.1.share" in detail


class _Removed:
    def __init__(self, handle: Any) -> None:
        self.close = handle.remove


@pytest.mark.limit(
    "a gradient into what `forward` keeps on the model (`layer.aux_loss`), and none into what it "
    "returns, or where that is the loss; or into what is no scalar",
    "an error; add it to the loss of a model that returns no loss, or in `forward`",
)
def test_a_gradient_into_what_is_kept_alone_is_refused(logits: Pair) -> None:
    _, planned = logits.models()
    planned(*logits.inputs()[0])
    with pytest.raises(RuntimeError, match=r"keeps on the model, and none into what it returns"):
        planned.layers[1].balance.backward()


def test_a_gradient_into_a_vector_is_refused(logits: Pair) -> None:
    """Nearly none comes into those, and each would be waited for."""
    _, planned = logits.models()
    loss = planned(*logits.inputs()[0]).sum() + planned.layers[1].rows.square().sum()
    with pytest.raises(RuntimeError, match=r"keeps on the model, which has none .* scalars alone"):
        loss.backward()


def test_beside_a_loss_it_takes_no_gradient() -> None:
    """As any output beside the loss: what forward has added itself is in it."""
    pair = make_pair_of(experts(LOSS), "lowest", "per-layer")
    original, planned = pair.models()
    args = pair.inputs()[0]
    for model in (original, planned):
        torch.manual_seed(3)
        model(*args).backward()
    assert all(
        torch.equal(p.grad, q.grad)
        for p, q in zip(original.parameters(), planned.parameters(), strict=True)
    )
    assert torch.equal(original.layers[2].balance, planned.layers[2].balance)
    loss = planned(*args)
    with pytest.raises(RuntimeError, match="forward keeps on the model, which has none beside"):
        (loss + planned.layers[0].balance).backward()


SAME = {
    "what is returned": "y = self.head(self.body(x))\nself.last = y\nreturn y",
    "a part of what is returned": "y = self.head(self.body(x))\nself.last = y[:2]\nreturn y",
    "an input": "self.last = x\nreturn self.head(self.body(x))",
    "a parameter": "self.last = self.head.weight.view(-1)\nreturn self.head(self.body(x))",
    "kept twice": "h = self.body(x)\nself.last = self.head.last = h.mean()\nreturn self.head(h)",
    "written over": "h = self.body(x)\nself.last = h.sum()\nself.last = h.mean()\n"
    "return self.head(h)",
    "with no gradient": "h = self.body(x)\nwith torch.no_grad():\n    self.last = h.norm()\n"
    "return self.head(h)",
}


@pytest.mark.parametrize("forward", SAME.values(), ids=SAME)
def test_it_is_what_eager_keeps(forward: str) -> None:
    pair = make_pair_of(model_source(forward), "lowest", "per-layer")
    found = []
    for model in pair.models():
        torch.manual_seed(3)
        y = model(*pair.inputs()[0])
        y.square().sum().backward()
        found.append((model.last, y, *(p.grad for p in model.parameters())))
    assert found[0][0].requires_grad == found[1][0].requires_grad
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


BESIDE = {
    "a gradient in forward": (
        "x = x.detach().requires_grad_()\ny = self.head(self.body(x))\n"
        "(d_x,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)\n"
        "self.last = d_x.detach()\nreturn y.sum() + d_x.square().mean()"
    ),
    "a part of a profile": (
        "with torch.profiler.record_function('body'):\n    h = self.body(x)\n"
        "self.last = h.detach()\nreturn self.head(h).sum()"
    ),
}


@pytest.mark.parametrize("forward", BESIDE.values(), ids=BESIDE)
def test_beside_what_needs_a_real_run(forward: str) -> None:
    """Nothing was saved in it for backward, and what profiles counts was taken for what it does."""
    pair = make_pair_of(model_source(forward), "lowest", "per-layer")
    found = []
    for model in pair.models():
        torch.manual_seed(3)
        model(*pair.inputs()[0]).backward()
        found.append((model.last, *(p.grad for p in model.parameters())))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_a_rung_that_keeps_something(tmp_path: Path) -> None:
    path = tmp_path / "experts.py"
    path.write_text(experts(LOGITS), encoding="utf-8")
    generated = remat_gen.generate(path, budget="70%", rungs="batch<=3", device="cpu")
    assert generated.output is not None
    original, planned = (import_file(p, p.stem).build_model() for p in (path, generated.output))
    planned.load_state_dict(original.state_dict())
    for batch in (6, 3, 2):
        args = (torch.randn(batch, 8),)
        assert same(step(original, args, 0.1), step(planned, args, 0.1))
