"""Which dimensions of units' arguments are the batch: what a step of a smaller one shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import planned_units
import pytest
import torch
from planned_units import Pair, pair_of, same_bits

import remat_gen
from remat_gen.verification.step import training_step

SOURCE = """\
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(x + MIXED)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(3)), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.ones(LENGTH, LENGTH, device=x.device).tril()
        for layer in self.layers:
            x = CALL
        return self.head(x).square().mean()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(6, LENGTH, 32),)
"""


OF_ROWS = {
    "class Layer": """@dataclass
class Rows:
    x: Tensor
    mask: Any = None


class Layer""",
    "import torch\n": "from dataclasses import dataclass\nfrom typing import Any\nimport torch\n",
    "x + self.down(F.gelu(self.up(x + MIXED)))": "x.x + self.down(F.gelu(self.up(x.mask @ x.x)))",
}


def planned(
    folder: Path,
    length: int,
    call: str,
    mixed: str = "mask @ x",
    changes: Mapping[str, str] | None = None,
) -> Pair:
    """Plan the layers of a model whose rows are `mixed` along a sequence of a length."""
    path = folder / "model.py"
    source = SOURCE
    for old, new in (changes or {}).items():
        source = source.replace(old, new, 1)
    source = source.replace("LENGTH", str(length)).replace("CALL", call)
    path.write_text(source.replace("MIXED", mixed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("remat_gen.capture.profile.profile.profile", planned_units.modelled)
        return pair_of(path, remat_gen.generate(path, budget="90%", units=["layers.*"]))


def equal_with(pair: Pair, batch: int) -> bool:
    """Tell whether a step of a batch leaves what eager's leaves."""
    (x,), _ = pair.example
    left = []
    for model in pair.models():
        loss = training_step(model, (x[:batch],), {})
        left.append([loss, *(p.grad for p in model.parameters())])
    return all(map(torch.equal, *left))


@pytest.mark.parametrize("length", [5, 6])
def test_a_mask_is_no_batch_where_it_is_as_long(tmp_path: Path, length: int) -> None:
    pair = planned(tmp_path, length, "layer(x, mask)")
    assert pair.generated.plan.dynamic == ("x:0",)
    assert same_bits(pair)
    assert all(equal_with(pair, batch) for batch in (1, 2, 5))


@pytest.mark.parametrize("length", [5, 6])
def test_the_batch_may_lie_behind_the_sequence(tmp_path: Path, length: int) -> None:
    call = "layer(x.transpose(0, 1), mask).transpose(0, 1)"
    pair = planned(tmp_path, length, call, "torch.einsum('st,tbc->sbc', mask, x)")
    assert pair.generated.lengths == "2 <= batch <= 6"
    assert same_bits(pair)
    assert all(equal_with(pair, batch) for batch in (1, 2, 5))


def test_rows_of_the_batch_one_after_another_pin_it_and_that_is_said(tmp_path: Path) -> None:
    call = "layer(x.flatten(0, 1), mask).view_as(x)"
    pair = planned(tmp_path, 5, call, "(mask @ x.view(-1, 5, 32)).view_as(x)")
    said = "inputs      as in the example only: layers.0 is given more than one row for each of"
    assert said in repr(pair.generated)
    assert same_bits(pair)
    with pytest.raises(
        ValueError, match=r"x of layers.0 is float32\[10, 32\].*planned for float32\[30, 32\]"
    ):
        equal_with(pair, 2)


def test_a_step_of_the_examples_batch_alone_says_why(tmp_path: Path) -> None:
    pair = planned(tmp_path, 5, "layer(x.view(6, 5, 32), mask)")
    said = "inputs      as in the example only: with a batch of 5 the model's own step fails"
    assert said in repr(pair.generated)
    assert same_bits(pair)


def test_strides_that_hold_the_batch_pin_it_and_that_is_said(tmp_path: Path) -> None:
    """An LSTM with batch_first hands such on: a smaller batch was promised, and refused."""
    call = "layer(x.transpose(0, 1).contiguous().transpose(0, 1), mask)"
    pair = planned(tmp_path, 5, call)
    said = "as in the example only: layers.0 is given a tensor whose strides are others"
    assert said in repr(pair.generated)
    assert same_bits(pair)


def test_arguments_may_be_dataclasses_that_the_model_makes(tmp_path: Path) -> None:
    pair = planned(tmp_path, 5, "Rows(layer(Rows(x, mask), mask)).x", "x.x", OF_ROWS)
    assert pair.generated.plan.dynamic == ("x:0",)
    assert same_bits(pair)
    assert all(equal_with(pair, batch) for batch in (1, 2, 5))
    _, model = pair.models()
    rows = pair.original.Rows(torch.randn(6, 5, 32), torch.ones(5, 5, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"x of layers\.0 is Rows \{'x': .*'mask': float64"):
        model.layers[0](rows, rows.mask.float())


@pytest.mark.untold(
    "With units: an object of a class that the original's file defines, given to a model of the "
    "generated one, whose own forward asks `isinstance`. (A model that is planned as a whole "
    "refuses it by name. Take such classes from the generated file, as the model.)"
)
def test_an_object_of_the_original_files_class(tmp_path: Path) -> None:
    forward = "def forward(self, x: Tensor) -> Tensor:\n        mask ="
    asked = "        x = rows.x * (1.0 if isinstance(rows, Rows) else 2.0)\n        mask ="
    changes = OF_ROWS | {
        forward: f"def forward(self, rows: Any) -> Tensor:\n{asked}",
        "(torch.randn(6, LENGTH, 32),)": "(Rows(torch.randn(6, LENGTH, 32)),)",
    }
    pair = planned(tmp_path, 5, "layer(Rows(x, mask), mask)", "x.x", changes)
    (rows,), _ = pair.example
    original, model = pair.models()
    of_the_file = pair.planned.Rows(rows.x)
    assert torch.equal(original(rows), model(of_the_file))
    assert not torch.equal(original(rows), model(rows))
