"""The classes of units: of one name, derived from each other, of a file or imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import planned_units
import pytest
import torch
from planned_units import pair_of

import remat_gen
from remat_gen.verification.step import training_step

BLOCK = """
import torch
from torch import nn


class {name}({base}):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.{function}(self.up(x)))
"""
NET = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList([{layers}])

    def forward(self, x):
        for layer in self.h:
            x = layer(x)
        return x.square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(8, 16),)
"""
INHERITS = "\n\nclass Other(Base):\n    pass\n"
CALLS_UP = (
    "\n\nclass Other(Base):\n    def forward(self, x):\n        return super().forward(x) / 2\n"
)
BASE = BLOCK.format(name="Base", base="nn.Module", function="relu")


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two modules with a class of the same name each."""
    for name, function in (("first_blocks", "relu"), ("second_blocks", "tanh")):
        text = BLOCK.format(name="Block", base="nn.Module", function=function)
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("first_blocks", "second_blocks"):
        sys.modules.pop(name, None)


def is_as_eager(original: ModuleType, planned: ModuleType) -> bool:
    """Tell whether a step and an evaluation are eager's, to the bit."""
    found = []
    for model in (planned_units.build(original), planned_units.build(planned)):
        torch.manual_seed(1)
        x = torch.randn(8, 16)
        training_step(model, (x,), {})
        with torch.no_grad():
            results = [model(x), model.eval()(x)]
        found.append([*results, *(p.grad for p in model.parameters())])
    return all(map(torch.equal, *found))


def plan(folder: Path, text: str) -> tuple[ModuleType, ModuleType]:
    """Plan all layers of a file; return it and what was generated."""
    source = folder / "net.py"
    source.write_text(text, encoding="utf-8")
    made = remat_gen.generate(source, budget="100%", units=["h.*"], device="cpu")
    pair = pair_of(source, made)
    return pair.original, pair.planned


def test_classes_of_one_name_keep_their_own_forward(libraries: Path) -> None:
    layers = "first_blocks.Block(), second_blocks.Block(), first_blocks.Block()"
    head = "import first_blocks\nimport second_blocks\nimport torch\nfrom torch import nn\n"
    assert is_as_eager(*plan(libraries, head + NET.format(layers=layers)))


@pytest.mark.parametrize("layers", ["Base(), Other(), Base(), Other()", "Other(), Base()"])
def test_a_class_without_a_forward_of_its_own_has_that_of_its_base(
    tmp_path: Path, layers: str
) -> None:
    assert is_as_eager(*plan(tmp_path, BASE + INHERITS + NET.format(layers=layers)))


def test_a_forward_that_calls_a_planned_one_is_refused(tmp_path: Path) -> None:
    words = r"Other\.forward calls the forward of Base, .*: name the units of one of both"
    with pytest.raises(remat_gen.RematError, match=words):
        plan(tmp_path, BASE + CALLS_UP + NET.format(layers="Base(), Other()"))


def test_a_forward_that_calls_one_that_stays_eager_is_planned(tmp_path: Path) -> None:
    assert is_as_eager(*plan(tmp_path, BASE + CALLS_UP + NET.format(layers="Other(), Other()")))
