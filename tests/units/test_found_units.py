"""Units that are found: the repeated layers, else what can be traced inside them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from planned_units import MODELS, PATTERNS, peak, plan, same_bits
from torch import Tensor, nn

from remat_gen import RematError, generate, verify
from remat_gen.capture.load.load import load
from remat_gen.capture.units.chosen_units import Choice, patterns_of, starred
from remat_gen.capture.units.watched_modules import Watched
from remat_gen.units.finding_units import watch


def _mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))


class Layer(nn.Module):
    """Two branches and what is between them."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = _mlp(), _mlp()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.right(x + self.left(x))


class Net(nn.Module):
    """Layers in a list, and rows that go where their values send them."""

    def __init__(self) -> None:
        super().__init__()
        self.h = nn.ModuleList(Layer() for _ in range(3))
        self.experts = nn.ModuleList(_mlp() for _ in range(2))
        self.gate = nn.Linear(8, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.h:
            x = layer(x)
        which = self.gate(x).argmax(-1)
        return sum(expert(x[which == i]).sum() for i, expert in enumerate(self.experts))


def _watched(model: Net) -> list[Watched]:
    torch.manual_seed(0)
    x = torch.randn(32, 8)
    seen = []
    for sign in (1, -1):
        model.gate.weight.data.mul_(sign)
        watched = Watched(model)
        with watched.installed():
            model(x)
        seen.append(watched)
    return seen


@pytest.fixture
def model() -> Net:
    torch.manual_seed(0)
    return Net()


def test_what_a_module_could_let_go_of_is_what_it_keeps_inside(model: Net) -> None:
    kept = _watched(model)[0].kept_bytes
    hidden = 2 * 32 * 32 * 4  # before and after GELU: 32 rows of 32 numbers
    assert kept["h.0.left"] == hidden
    assert kept["h.0"] == 2 * hidden + 32 * 8 * 4  # and what the second branch reads
    assert kept["h.0.left.1"] == kept["h.0.left.0"] == 0


def test_repeated_layers_are_chosen_and_what_is_inside_those_that_are_refused(model: Net) -> None:
    choice = Choice(model, _watched(model))
    assert choice.paths == ["h.0", "h.1", "h.2"]  # experts get rows by value
    choice.refused.add("h.1")
    assert choice.paths == ["h.0", "h.1.left", "h.1.right", "h.2"]
    choice.idle.add("h.1.left")
    assert choice.paths == ["h.0", "h.1.right", "h.2"]


@pytest.mark.parametrize(
    ("paths", "patterns"),
    [
        (["h.0", "h.1", "h.2"], ("h.*",)),
        (["h.0.left", "h.1.left", "h.2.left"], ("h.*.left",)),
        (["h.0", "h.2"], ("h.0", "h.2")),
        (["h.0.left.0", "h.0.left.1", "h.0.left.2"], ("h.0.left.*",)),
    ],
)
def test_patterns_name_the_chosen_and_no_other(
    model: Net, paths: list[str], patterns: tuple[str, ...]
) -> None:
    assert patterns_of(model, paths) == patterns
    assert starred("0.h.12.mlp2") == "*.h.*.mlp2"


def test_found_units_are_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PATTERNS, "routed", "auto")
    pair = plan(tmp_path, "routed", "75%")
    units = pair.generated.plan.units
    assert units and units.patterns == ("h.*",) and units.planned_share > 0.5
    assert "units       h.*: " in str(pair.generated)
    assert same_bits(pair)
    original, planned = pair.models()
    assert peak(pair, planned) <= 0.78 * peak(pair, original)


PARTLY_FROZEN = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)) for _ in range(4)
        )
        self.h[:2].requires_grad_(False)

    def forward(self, x):
        for layer in self.h:
            x = x + layer(x)
        return x.sum()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(32, 16),)
"""


def test_a_trained_layer_is_not_refused_for_frozen_ones(tmp_path: Path) -> None:
    """What is called alike, without a gradient, and made of the same was taken for the same."""
    source = tmp_path / "net.py"
    source.write_text(PARTLY_FROZEN)
    units = generate(source, budget="90%", units="auto", effort="quick").plan.units
    assert units and units.patterns == ("h.2", "h.3")
    with pytest.raises(RematError, match=r"no gradient goes through h\.0, h\.1; name the others"):
        generate(source, budget="90%", units="h.*")


def test_a_check_that_other_weights_fail_is_no_refusal(tmp_path: Path) -> None:
    check = "self.said = [x.detach().mean().item()]"
    held = "if not torch.equal(self.h[0].up.weight, self.first): raise ValueError('other')"
    made = "self.said: list[float] = []"
    copied = f"{made}\n        self.first = self.h[0].up.weight.detach().clone()"
    source = tmp_path / "routed.py"
    text = (MODELS / "routed.py").read_text()
    source.write_text(text.replace(check, f"{check}\n        {held}").replace(made, copied))
    loaded = load(source, device="cpu")
    before = {name: p.detach().clone() for name, p in loaded.model.named_parameters()}
    assert len(watch(loaded)) == 1
    assert all(torch.equal(before[name], p) for name, p in loaded.model.named_parameters())


@pytest.fixture
def with_buffer(tmp_path: Path) -> Path:
    """Return a model whose forward makes a buffer, between its units."""
    source = tmp_path / "routed.py"
    text = (MODELS / "routed.py").read_text()
    made = "self.said: list[float] = []"
    filled = "self.register_buffer('ramp', x.detach().mean(0), persistent=False)"
    check = "self.said = [x.detach().mean().item()]"
    empty = "self.register_buffer('ramp', None, persistent=False)"
    text = text.replace(made, f"{made}\n        {empty}")
    source.write_text(text.replace(check, f"{check}\n        {filled}"))
    return source


def test_a_buffer_that_forward_makes_is_taken_away(with_buffer: Path) -> None:
    """The buffers that the model has again were compared with those that it had."""
    loaded = load(with_buffer, device="cpu")
    assert watch(loaded) and loaded.model.ramp is None


def test_a_buffer_between_units_is_made_in_each_run(with_buffer: Path) -> None:
    """Its step was neither measured nor compared: the second run found a buffer too many."""
    made = generate(with_buffer, budget="80%", units=["h.*"], effort="quick")
    assert made.output is not None and "measured" in str(made).partition("\n")[0]
    report = verify(made.output, time_steps=1)
    assert report.ok and report.bitwise, report.rows()


def test_layers_that_are_called_with_other_sizes_are_named(tmp_path: Path) -> None:
    source = tmp_path / "routed.py"
    again = "x = self.h[0](self.h[2](x))"
    shorter = "x = self.h[0](self.h[1](self.h[2](x[:, 1:]))); ids = ids[:, 1:]"
    source.write_text((MODELS / "routed.py").read_text().replace(again, shorter))
    with pytest.raises(RematError, match=r"h\.\* is called with other sizes or values from call"):
        generate(source, budget="70%", units=["auto"], output=tmp_path / "x.py")
