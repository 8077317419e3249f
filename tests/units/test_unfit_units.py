"""Submodules that can be no units, told while planning; units that lie deep in others' layers."""

from __future__ import annotations

from pathlib import Path

import planned_units
import pytest
import torch
from planned_units import Pair, pair_of
from torch import nn

import remat_gen
from remat_gen.explain.explanation import explain_file
from remat_gen.verification.step import training_step

SOURCE = """\
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(32))
        self.up, self.down, self.drop = nn.Linear(32, 128), nn.Linear(128, 32), nn.Dropout(0.1)
        self.kept = None

    def forward(self, x: Tensor, y: Tensor, seen: list) -> Tensor:
        h = F.gelu(self.up(x * self.scale))
        return self.drop(self.down(h))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(32), Mlp()

    def forward(self, x: Tensor, seen: list) -> Tensor:
        n = self.norm(x)
        m = self.mlp(n, n.sin(), seen)
        return x + m


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(3)), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        seen = []
        for layer in self.layers:
            x = layer(x, seen)
        return self.head(x).square().mean()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(8, 16, 32),)
"""


def write(folder: Path, *changes: tuple[str, str]) -> Path:
    text = SOURCE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "net.py"
    path.write_text(text, encoding="utf-8")
    return path


def planned(folder: Path, *changes: tuple[str, str], units: str = "layers.*.mlp") -> Pair:
    path = write(folder, *changes)
    return pair_of(path, remat_gen.generate(path, budget="95%", units=[units], device="cpu"))


def test_units_inside_of_layers_have_tables_too(tmp_path: Path) -> None:
    """Their rows were sought by the layers' paths, which are no unit's: every change was silent."""
    pair = planned(tmp_path)
    assert planned_units.same_bits(pair)

    def refused(model: nn.Module, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            training_step(model, *pair.example)

    _, model = pair.models()
    model.layers[1].mlp.drop.p = 0.5
    refused(model, r"layers\.1\.mlp\.drop\.p is 0\.5, planned for 0\.1")
    _, model = pair.models()
    model.layers[2].mlp.drop.eval()
    refused(model, r"layers\.2\.mlp\.drop\.training is False, planned for True")
    _, model = pair.models()
    model.layers[0].mlp.up.register_forward_hook(lambda *_: None)
    refused(model, r"layers\.0\.mlp\.up is Linear.* with hook")
    _, model = pair.models()
    model.layers[0].mlp.drop = nn.Identity()
    refused(model, r"layers\.0\.mlp\.drop is Identity, planned for Dropout")
    _, model = pair.models()
    model.layers[0].mlp.scale.requires_grad_(False)
    refused(model, r"layers\.0\.mlp is model\(scale: float32\[32\] frozen\), planned for")


LARGE = ("h = F.gelu", "self.kept = x.repeat(2, 1, 1)\n        h = F.gelu")


@pytest.mark.limit(
    "a unit that keeps something on itself, which the model reads outside of it, and which is no "
    "tensor, or of more than 4,096 numbers",
    "refused when planning: let it return that; what nobody reads is None behind a planned step",
)
@pytest.mark.parametrize(
    ("keeps", "read"),
    [
        ("x.repeat(2, 1, 1)", "self.mlp.kept.mean()"),
        ("[x.repeat(2, 1, 1)]", "self.mlp.kept[0].mean()"),
    ],
)
def test_what_a_unit_keeps_may_not_be_read_elsewhere(tmp_path: Path, keeps: str, read: str) -> None:
    changes = (
        ("h = F.gelu", f"self.kept = {keeps}\n        h = F.gelu"),
        ("x + m", f"x + m + {read}"),
    )
    with pytest.raises(remat_gen.RematError, match=r"keeps layers\.0\.mlp\.kept, which the model"):
        planned(tmp_path, *changes)
    assert planned_units.same_bits(planned(tmp_path, *changes, units="layers.*"))


def test_what_nobody_reads_may_be_kept(tmp_path: Path) -> None:
    pair = planned(tmp_path, LARGE)
    assert planned_units.same_bits(pair)
    _, model = pair.models()
    args, _ = pair.example
    assert model.eval()(*args) is not None
    assert model.layers[1].mlp.kept is not None
    training_step(model.train(), args, {})
    assert model.layers[1].mlp.kept is None  # what the evaluation left is none of the step's


def test_what_a_step_before_has_kept_is_not_freed_in_the_next(tmp_path: Path) -> None:
    """What a unit keeps holds what led to it: eager's rest was taken for as much smaller."""
    keeps = ("h = F.gelu", "self.kept = self.up(x).softmax(-1).mean()\n        h = F.gelu")
    output = planned(tmp_path, keeps).generated.output
    assert output is not None
    assert remat_gen.verify(output).ok


UNFIT = {
    "a tensor set from outside": (
        [
            ("m = self.mlp", "self.mlp.kept = n.mean()\n        m = self.mlp"),
            ("self.drop(self.down(h))", "self.drop(self.down(h) + self.kept)"),
        ],
        r"layers\.0\.mlp\.kept is a tensor that the model computes with a gradient",
    ),
    "an argument that is written into": (
        [("h = F.gelu", "y.add_(1)\n        h = F.gelu")],
        r"layers\.0\.mlp writes into what it is called with",
    ),
    "a list that grows": (
        [("h = F.gelu", "seen.append(x.mean())\n        h = F.gelu")],
        r"layers\.0\.mlp changes a list or dict that it is given",
    ),
    "one tensor for two": (
        [("n.sin()", "n"), ("h = F.gelu", "x = x if x is y else x + y\n        h = F.gelu")],
        r"layers\.0\.mlp, as a unit: it is given one tensor as x and y",
    ),
}


CALL = "m = self.mlp(n, n.sin(), seen)"
AROUND = {
    "attention's kernels": (
        "with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):",
        r"the model calls layers\.0\.mlp with sdpa_kernel math, and its step begins with flash",
    ),
    "autocast": (
        'with torch.autocast("cpu", torch.bfloat16):',
        r"layers\.0\.mlp with autocast bfloat16, and its step begins with off.*: let step_context",
    ),
    "a backend": (
        "with torch.backends.mkldnn.flags(enabled=False):",
        r"layers\.0\.mlp with torch\.backends\.mkldnn\.flags False, and its step begins with True",
    ),
    "an attribute": (
        "with unittest.mock.patch.object(self.mlp.drop, 'p', 0.5):",
        r"layers\.0\.mlp\.drop\.p is 0\.5 where the model calls it, and 0\.1 before",
    ),
}


@pytest.mark.limit(
    "units that the model calls under `autocast`, `sdpa_kernel` and others that its own forward "
    "begins, or with attributes that it sets around the call",
    "refused when planning: let `step_context()` return the autocast, or name what is around it",
)
@pytest.mark.parametrize(("line", "words"), AROUND.values(), ids=AROUND)
def test_what_the_model_sets_around_a_unit(tmp_path: Path, line: str, words: str) -> None:
    around = (
        "m = self.mlp(n, n.sin(), seen)",
        f"{line}\n            m = self.mlp(n, n.sin(), seen)",
    )
    with pytest.raises(remat_gen.RematError, match=words):
        planned(tmp_path, around, ("import torch\n", "import torch\nimport unittest.mock\n"))


def test_what_nobody_reads_may_be_set_around_a_unit(tmp_path: Path) -> None:
    line = "with unittest.mock.patch.object(self.mlp, 'kept', 3):"
    around = (
        "m = self.mlp(n, n.sin(), seen)",
        f"{line}\n            m = self.mlp(n, n.sin(), seen)",
    )
    pair = planned(tmp_path, around, ("import torch\n", "import torch\nimport unittest.mock\n"))
    assert planned_units.same_bits(pair)


def test_one_number_that_a_unit_returns_is_no_loss(tmp_path: Path) -> None:
    """A mixture's term of the loss comes beside what the next layer takes."""
    pair = planned(
        tmp_path,
        ("return self.drop(self.down(h))", "return self.drop(self.down(h)), h.square().mean(), h"),
        (CALL, "m, extra, _ = self.mlp(n, n.sin(), seen)"),
        ("return x + m", "seen.append(extra)\n        return x + m"),
        ("square().mean()\n\n\ndef", "square().mean() + 0.01 * sum(seen)\n\n\ndef"),
    )
    assert planned_units.same_bits(pair)


TABLE = """\
if self.length != x.shape[1]:
            self.length = x.shape[1]
            self.table = torch.arange(x.shape[1])[:, None].cos()
        h = F.gelu"""


@pytest.mark.limit(
    "a unit that keeps a table on itself in its first step, and goes on with it in others (rotary "
    "embeddings with the length that they are for)",
    "refused when planning, with its name; make it in `__init__`, or run the model once in "
    "`build_model()`",
)
def test_what_the_first_step_makes_for_others_is_refused(tmp_path: Path) -> None:
    """It was planned, and the first step of a fresh model said what it has not."""
    changes = (
        ("self.kept = None", "self.length = self.table = None"),
        ("h = F.gelu", TABLE),
        ("self.up(x * self.scale)", "self.up(x * self.scale * self.table)"),
    )
    with pytest.raises(remat_gen.RematError, match=r"mlp\.length is None until .* model once in"):
        planned(tmp_path, *changes)
    built = "    net = Net()\n    with torch.no_grad():\n        net(torch.randn(1, 16, 32))\n"
    once = ("    return Net()\n", f"{built}    return net\n")
    assert planned_units.same_bits(planned(tmp_path, *changes, once))


@pytest.mark.parametrize(("changes", "words"), UNFIT.values(), ids=UNFIT)
def test_what_can_be_no_unit_is_told(
    tmp_path: Path, changes: list[tuple[str, str]], words: str
) -> None:
    with pytest.raises(remat_gen.RematError, match=words):
        planned(tmp_path, *changes)


CAST = """

def step_context() -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16, cache_enabled={cached})
"""


@pytest.mark.limit(
    "units that are called twice in a step under autocast, which casts their weights once",
    "refused when planning: `cache_enabled=False` in `step_context()` makes each call its own",
)
def test_weights_that_are_cast_once_for_two_calls_are_refused(tmp_path: Path) -> None:
    twice = ("x = layer(x, seen)", "x = layer(layer(x, seen), seen)")
    end = "return (torch.randn(8, 16, 32),)\n"
    with pytest.raises(remat_gen.RematError, match=r"weights of layers\.0\.mlp once for 2 calls"):
        planned(tmp_path, twice, (end, end + CAST.format(cached=True)))
    planned(tmp_path, (end, end + CAST.format(cached=True)))
    pair = planned(tmp_path, twice, (end, end + CAST.format(cached=False)))
    assert pair.generated.output is not None
    assert remat_gen.verify(pair.generated.output).ok


def test_values_of_units_are_explained_by_the_plans_names(tmp_path: Path) -> None:
    output = planned(tmp_path).generated.output
    assert output is not None
    found = explain_file(output, "layers.1.mlp.*")
    assert any(value.name == "layers.1.mlp.h" for value in found.values)
    with pytest.raises(remat_gen.RematError, match=r"eager\.layers: no value of this name"):
        explain_file(output, "eager.layers")


def test_contexts_of_the_caller_are_none_of_the_steps(tmp_path: Path) -> None:
    path = write(tmp_path)
    with torch.no_grad():
        made = remat_gen.generate(path, budget="90%", device="cpu")
    assert made.output is not None
    with torch.inference_mode():
        assert remat_gen.verify(made.output).ok
    words = r"called inside of torch\.autocast.*step_context"
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(remat_gen.RematError, match=words):
        remat_gen.generate(path, budget="90%", device="cpu")


@pytest.mark.limit(
    "units that `torch.utils.checkpoint` runs again in backward",
    "refused: a planned unit says itself what runs again; leave the checkpoint out",
)
def test_a_checkpoint_around_units_is_refused(tmp_path: Path) -> None:
    calls = (
        "x = layer(x, seen)",
        "x = torch.utils.checkpoint.checkpoint(layer, x, seen, use_reentrant=False)",
    )
    imports = ("import torch\n", "import torch\nimport torch.utils.checkpoint\n")
    with pytest.raises(remat_gen.RematError, match=r"calls layers\.2 again.*leave the check"):
        planned(tmp_path, calls, imports, units="layers.*")


def test_a_reentrant_checkpoint_around_units_is_told(tmp_path: Path) -> None:
    """Nothing is recorded in it, so that no call counts: they were said to be not called at all."""
    calls = (
        "x = layer(x, seen)",
        "x = torch.utils.checkpoint.checkpoint(layer, x, seen, use_reentrant=True)",
    )
    imports = ("import torch\n", "import torch\nimport torch.utils.checkpoint\n")
    with pytest.raises(remat_gen.RematError, match="recorded for backward, as in a reent"):
        planned(tmp_path, calls, imports, units="layers.*")
