"""Small tensors that units keep on themselves, for the model or the loop around it to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import planned_units
import pytest
import torch
from planned_units import Pair, pair_of
from torch import nn

import remat_gen

SOURCE = """\
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(32, 4, bias=False)
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)
        self.drop = nn.Dropout(0.1)
        self.balance = None
        self.rows = None

    def forward(self, x: Tensor) -> Tensor:
        share = self.gate(x).softmax(-1)
        self.rows = share.flatten(0, 1).mean(0)
        self.balance = self.rows.square().sum() * 4
        self.told = share.argmax(-1)
        return self.drop(self.down(F.gelu(self.up(x)))) * share.amax(-1, keepdim=True)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.experts = nn.LayerNorm(32), Experts()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.experts(self.norm(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(4)), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        y = self.head(x)
        READS
        return y


def build_model() -> nn.Module:
    torch.manual_seed(0)
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(8, 16, 32),)
"""
LOOP = "pass"
LOSS = "y = y.square().mean() + sum(layer.experts.balance for layer in self.layers)"
ROWS = "y = y.square().mean() + sum(layer.experts.rows.max() for layer in self.layers)"
KEPT = ("balance", "rows", "told")


def planned(folder: Path, reads: str, units: str = "layers.*") -> Pair:
    path = folder / "net.py"
    path.write_text(SOURCE.replace("READS", reads), encoding="utf-8")
    return pair_of(path, remat_gen.generate(path, budget="75%", units=[units], device="cpu"))


def step(model: nn.Module, x: torch.Tensor, share: float = 0.0) -> dict[str, Any]:
    """Run a step whose loop adds a share of what the layers keep; return what it leaves."""
    model.zero_grad()
    torch.manual_seed(3)
    loss = model(x).square().mean()
    if share:
        loss = loss + share * sum(layer.experts.balance for layer in model.layers)
    loss.backward()
    experts = [layer.experts for layer in model.layers]
    kept = {f"{i}.{name}": getattr(e, name) for i, e in enumerate(experts) for name in KEPT}
    return kept | {n: p.grad for n, p in model.named_parameters()} | {"loss": loss.detach()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one.keys() | other.keys())


@pytest.mark.parametrize("units", ["layers.*", "layers.*.experts"])
@pytest.mark.parametrize("reads", [LOSS, ROWS])
def test_the_model_reads_what_its_units_keep(tmp_path: Path, reads: str, units: str) -> None:
    pair = planned(tmp_path, reads, units)
    assert planned_units.same_bits(pair)
    original, model = pair.models()
    for batch in (8, 3):
        x = torch.randn(batch, 16, 32)
        assert same(step(original, x), step(model, x))
    assert pair.generated.output is not None
    report = remat_gen.verify(pair.generated.output)
    assert report.ok, report.text
    assert not remat_gen.check(pair.generated.output).stale


def test_the_loop_reads_what_units_keep(tmp_path: Path) -> None:
    """In some steps, not in others."""
    original, model = planned(tmp_path, LOOP).models()
    for share in (0.1, 0.0, 0.5):
        x = torch.randn(8, 16, 32)
        assert same(step(original, x, share), step(model, x, share))


IN_DICT = 'y = y.square().mean() + sum(layer.experts.told["balance"] for layer in self.layers)'


@pytest.mark.parametrize(
    "keep",
    [
        'self.told = {"balance": share.square().mean()}',
        'self.seen["balance"] = share.amax()',
        'self.seen = OrderedDict(balance=share.amax(), pair=(share.amin(), "amin"))',
    ],
)
def test_the_model_reads_what_its_units_keep_in_dicts(tmp_path: Path, keep: str) -> None:
    """One that the unit makes anew, one that it holds, one with a pair."""
    text = SOURCE.replace("self.told = share.argmax(-1)", keep)
    text = text.replace("self.rows = None", "self.rows, self.seen = None, {}")
    text = text.replace("import torch\n", "from collections import OrderedDict\nimport torch\n", 1)
    name = "told" if "told" in keep else "seen"
    path = tmp_path / "net.py"
    path.write_text(text.replace("READS", IN_DICT.replace("told", name)), encoding="utf-8")
    generated = remat_gen.generate(path, budget="75%", units=["layers.*"], device="cpu")
    pair = pair_of(path, generated)
    assert planned_units.same_bits(pair)
    for model in pair.models():
        model(torch.randn(8, 16, 32)).backward()
        held = getattr(model.layers[2].experts, name)
        assert held["balance"].ndim == 0
        assert "pair" not in keep or (type(held["pair"]), held["pair"][1]) == (tuple, "amin")


def test_a_model_that_writes_into_its_input(tmp_path: Path) -> None:
    """Its second run saw another input: its units were said to keep more than small tensors."""
    text = SOURCE.replace("READS", LOSS).replace(
        "        for layer in self.layers:\n            x =",
        "        x.mul_(0.5)\n        for layer in self.layers:\n            x =",
    )
    path = tmp_path / "net.py"
    path.write_text(text, encoding="utf-8")
    generated = remat_gen.generate(path, budget="80%", units=["layers.*"], device="cpu")
    assert planned_units.same_bits(pair_of(path, generated))


def test_a_unit_that_returns_a_dataclass(tmp_path: Path) -> None:
    """As the model may: its tensors are results."""
    given = SOURCE.replace("READS", LOSS).replace(
        "import torch\n", "import dataclasses\nimport torch\n", 1
    )
    given = given.replace(
        "class Layer(nn.Module)",
        "@dataclasses.dataclass\nclass Out:\n    x: Tensor\n\n\nclass Layer(nn.Module)",
    )
    given = given.replace(
        "return x + self.experts(self.norm(x))", "return Out(x + self.experts(self.norm(x)))"
    )
    path = tmp_path / "net.py"
    path.write_text(given.replace("x = layer(x)", "x = layer(x).x"), encoding="utf-8")
    generated = remat_gen.generate(path, budget="80%", units=["layers.*"], device="cpu")
    assert planned_units.same_bits(pair_of(path, generated))
