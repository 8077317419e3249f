"""What forward keeps in dicts and lists on modules: statistics by name, losses of all layers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pairs import Pair, make_pair_of
from sources import model_source
from steps import verified
from torch import nn

import remat_gen
from remat_gen.ir.errors import TraceError

GATED = """
class Gated(Layer):
    def __init__(self, shared: list[Tensor]) -> None:
        super().__init__()
        self.stats, self.shared = {}, shared

    def forward(self, x: Tensor) -> Tensor:
        share = self.up(x).softmax(-1)
        self.stats["gate/balance"] = share.mean(0).square().sum() * 16
        self.stats["rows"] = x.shape[0]
        self.shared.append(share.amax())
        return x + self.drop(self.down(F.gelu(share)))
"""
INIT = """
self.shared = []
self.by_number, self.deep = {}, {"all": [[None]]}
self.told = {"mean": 0.0}
self.layers = nn.ModuleList(Gated(self.shared) for _ in range(3))
"""
FORWARD = """
self.shared.clear()
y = self.head(self.body(x))
self.info = {"all": {"mean": y.mean(), "rows": x.shape[0]}, "parts": [y[0], "ends"], "kind": "head"}
self.told["mean"] = y.detach().mean()
self.deep["all"][0][0] = y.detach().std()
self.by_number[3] = y.detach().amax()
return y
"""


def source(forward: str, init: str = INIT) -> str:
    text = model_source(forward, init=init)
    return text.replace("\n\nclass Model", f"\n{GATED}\n\nclass Model")


@pytest.fixture(scope="module")
def pair() -> Pair:
    return make_pair_of(source(FORWARD), "lowest", "per-layer")


def step(model: nn.Module, x: torch.Tensor) -> dict[str, Any]:
    """Run a step whose loss adds what stands in the dicts and lists; return what it leaves."""
    model.zero_grad()
    torch.manual_seed(3)
    loss = model(x).square().mean() + sum(model.shared) + model.info["all"]["mean"]
    loss = loss + sum(layer.stats["gate/balance"] for layer in model.layers)
    loss.backward()
    kept = {f"shared {i}": tensor for i, tensor in enumerate(model.shared)}
    kept |= {"told": model.told["mean"], "part": model.info["parts"][0]}
    kept |= {"number": model.by_number[3], "deep": model.deep["all"][0][0], "loss": loss.detach()}
    return kept | {name: p.grad for name, p in model.named_parameters()}


def test_a_loss_that_adds_them(pair: Pair) -> None:
    original, planned = pair.models()
    for rows in (6, 6, 3):
        x = torch.randn(rows, 8)
        left, right = step(original, x), step(planned, x)
        assert left.keys() == right.keys()
        assert all(torch.equal(left[name], right[name]) for name in left)


def test_those_that_forward_makes_are_new_ones_others_stay(pair: Pair) -> None:
    """A loop that collects `model.info` has one for each step; all hold the one `shared`."""
    _, planned = pair.models()
    (x,) = pair.inputs()[0]
    planned(x)
    info, shared, told = planned.info, planned.shared, planned.told
    planned(x)
    assert planned.info is not info
    assert planned.shared is shared is planned.layers[1].shared
    assert len(shared) == 3
    assert planned.told is told


def test_plain_values_in_them_are_those_of_the_step(pair: Pair) -> None:
    """They were those of the last evaluation, or None where they vary with the batch."""
    _, planned = pair.models()
    (x,) = pair.inputs()[0]
    planned.eval()(x[:2])
    assert planned.layers[0].stats["rows"] == 2
    for rows in (6, 5):
        planned.train()(x[:rows])
        assert planned.info["kind"] == "head"
        assert planned.info["parts"][1] == "ends"
        assert planned.info["all"]["rows"] == planned.layers[0].stats["rows"] == rows


def test_they_stand_in_eagers_order() -> None:
    """A sum over `values()` was off in the last bits where the first step puts them there."""
    forward = """
    self.losses["second"] = (y := self.head(self.body(x))).square().mean()
    self.losses["first"], self.losses["rows"] = y.mean(), 3
    self.losses["a"] = {"z": y.amax(), "b": y.amin()}
    return y
    """
    source = model_source(forward, init="self.losses = {'old': 1}")
    for model in make_pair_of(source, "lowest", "per-layer").models():
        model(torch.randn(6, 8))
        assert list(model.losses) == ["old", "second", "first", "rows", "a"]
        assert list(model.losses["a"]) == ["z", "b"]
        assert (model.losses["old"], model.losses["rows"]) == (1, 3)


def test_the_summary_names_what_is_none(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    several = FORWARD.replace('"rows": x.shape[0]', '"rows": x.shape[0] > 4')
    path.write_text(source(several), encoding="utf-8")
    generated = remat_gen.generate(path, budget="100%", device="cpu")
    assert "info[all][rows]" in generated.unset


def test_verify_compares_them(pair: Pair) -> None:
    original, planned = pair.models()
    args, kwargs = pair.inputs()
    assert verified(original, planned, args, kwargs, "attributes")[0] is True

    def change(model: nn.Module, *_: Any) -> None:
        model.info["all"]["mean"] = model.info["all"]["mean"] * 2

    with planned.register_forward_hook(change):
        ok, detail = verified(original, planned, args, kwargs, "attributes")
    assert not ok
    assert "info[all][mean]" in detail


def test_one_that_is_returned_as_well(tmp_path: Path) -> None:
    forward = 'self.told["mean"] = (y := self.head(self.body(x))).mean()\nreturn y, self.told'
    init = 'self.told = {"mean": 0.0}'
    original, planned = make_pair_of(
        model_source(forward, init=init), "lowest", "per-layer"
    ).models()
    x = torch.randn(6, 8)
    for model in (original, planned):
        torch.manual_seed(3)
        _, told = model(x)
        told["mean"].backward()
        assert torch.equal(told["mean"], model.told["mean"])
    for one, other in zip(original.parameters(), planned.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


RUNNING = 'self.told["mean"] = 0.9 * self.told["mean"] + 0.1 * y.detach().mean()'
LAST = (
    'last = self.told["mean"] if torch.is_tensor(self.told["mean"]) else y.detach().mean()\n'
    'self.told["mean"] = y.detach().mean()\n'
    "y = y + (last - y.detach().mean())"
)
HISTORY = "self.history.append(y.detach().mean())"


@pytest.mark.limit(
    "a dict or list on a module whose tensors `forward` reads in the next step, or to which each "
    "step adds more",
    "refused with its name; make them buffers, or clear it in `forward`",
)
@pytest.mark.parametrize("kept", [RUNNING, LAST, HISTORY])
def test_what_the_next_step_goes_on_from_is_refused(kept: str, tmp_path: Path) -> None:
    """With the same inputs `LAST` returns the same again; other numbers there tell."""
    path = tmp_path / "model.py"
    forward = f"y = self.head(self.body(x))\n{kept}\nreturn y"
    init = 'self.told, self.history = {"mean": 0.0}, []'
    path.write_text(model_source(forward, init=init), encoding="utf-8")
    with pytest.raises(TraceError, match=r"self\.(told\[mean\]|history)"):
        remat_gen.generate(path, budget="100%", device="cpu")


def test_more_of_them_in_longer_steps_are_planned_for_the_example(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    forward = "y = self.head(self.body(x))\nself.rows = [row.sum() for row in y]\nreturn y"
    path.write_text(model_source(forward), encoding="utf-8")
    generated = remat_gen.generate(path, budget="100%", device="cpu")
    assert generated.output is not None
    assert "self.rows = [None, None, None, None, None, None]" in generated.output.read_text("utf-8")
    assert "forward keeps more in self.rows in longer steps" in generated.lengths


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda m: m.gains.update(e=2.0), r"gains\[e\] is 2\.0, planned for 1\.25"),
        (lambda m: m.box.__setitem__(0, 2.0), r"box\[0\] is 2\.0, planned for 1\.25"),
    ],
    ids=["defaultdict", "list"],
)
@pytest.mark.parametrize("after_a_step", [False, True])
def test_items_beside_those_that_forward_writes_are_compared(
    change: Callable[[Any], None], told: str, beside: Pair, *, after_a_step: bool
) -> None:
    """A container into which forward writes was not looked at any more."""
    _, planned = beside.models()
    args, _ = beside.inputs()
    if after_a_step:
        planned(*args)
    change(planned)
    with pytest.raises(ValueError, match=told):
        planned(*args)


@pytest.fixture(scope="module")
def beside() -> Pair:
    init = (
        "self.gains, self.box = __import__('collections').defaultdict(float, e=1.25), [1.25, None]"
    )
    forward = """
    x = self.body(x) * self.gains["e"] + self.gains["other"]
    self.box[1] = x.detach().mean()
    return self.head(x) * self.box[0]
    """
    return make_pair_of(model_source(forward, init=init), "lowest", "per-layer")


def test_large_tensors_in_a_dict_are_none() -> None:
    """What a hook has put there for the same step to read: U-Nets' skips, features of layers."""
    forward = """
    self.features["body"] = self.body(x)
    return self.head(self.features["body"].relu())
    """
    inputs = "(torch.randn(600, 8),)"
    pair = make_pair_of(model_source(forward, init="self.features = {}", inputs=inputs))
    found = []
    for model in pair.models():
        for _ in range(2):
            torch.manual_seed(0)
            found.append(model(*pair.inputs()[0]))
    assert all(torch.equal(found[0], other) for other in found[1:])
    assert model.features == {"body": None}


def test_counts_beside_what_is_kept() -> None:
    """Forward runs for real there: `bincount` was a look at values."""
    forward = """
    self.features["body"] = self.body(x)
    with torch.no_grad():
        self.hits.add_(torch.bincount(self.features["body"].argmax(-1), minlength=8))
    return self.head(self.features["body"].relu())
    """
    init = "self.features = {}\nself.register_buffer('hits', torch.zeros(8))"
    pair = make_pair_of(model_source(forward, init=init, inputs="(torch.randn(600, 8),)"))
    found = []
    for model in pair.models():
        torch.manual_seed(0)
        found.append((model(*pair.inputs()[0]), model.hits))
    assert all(map(torch.equal, *found))
    assert model.hits.sum() == 600


def test_a_large_tensor_whose_shape_the_next_step_reads_is_refused() -> None:
    forward = """
    y, last = self.body(x), self.state.get("h")
    self.state["h"] = y.detach()
    return self.head(y) * (1.0 if last is None or last.shape == x.shape else 2.0)
    """
    source = model_source(forward, init="self.state = {}", inputs="(torch.randn(600, 8),)")
    with pytest.raises(TraceError, match=r"self\.state"):
        make_pair_of(source)


@pytest.mark.parametrize("init", ["{}", "{'h': torch.zeros(600, 8)}"])
def test_large_tensors_that_the_next_step_reads_are_refused(init: str) -> None:
    forward = """
    y = self.body(x) + self.state.get("h", 0.0)
    self.state["h"] = y.detach()
    return self.head(y)
    """
    source = model_source(forward, init=f"self.state = {init}", inputs="(torch.randn(600, 8),)")
    with pytest.raises(TraceError, match=r"self\.state"):
        make_pair_of(source)
