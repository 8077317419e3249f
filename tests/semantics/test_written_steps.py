"""Planning runs a step of what it planned: where a trace goes another way, nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sources import model_source
from torch import Tensor, nn

import remat_gen
from remat_gen.ir.errors import UnlikeStepError
from remat_gen.plan import emission
from remat_gen.plan.pipeline import Generated

# What torch's symbols answer otherwise than numbers do, by what is asked of x.shape[0].
BY_SYMBOLS = {
    "identity": "2 if (x.shape[0] > 1) is True else 3",
    "of two": "2 if x.shape[0] is y.shape[0] else 3",
    "of one": "2 if (x.shape[0] == 1) is True else 3",
    "digits": "round(x.shape[0], -1)",
    "text": "len(str(x.shape[0] > 3))",
}


def planned(tmp_path: Path, factor: str) -> Generated:
    path = tmp_path / "net.py"
    text = model_source(f"y = self.head(self.body(x))\nreturn y * ({factor})")
    path.write_text(text.replace("\n\nclass Model", f"\n{SUM}\n\nclass Model"), "utf-8")
    return remat_gen.generate(path, budget="100%", device="cpu")


SUM = """
def total(*numbers):
    return float(sum(numbers))
"""


@pytest.mark.parametrize("kind", BY_SYMBOLS)
def test_the_examples_lengths_are_planned_where_others_go_another_way(
    kind: str, tmp_path: Path
) -> None:
    """Each was planned for all batches, with other numbers in every step, and nothing said."""
    generated = planned(tmp_path, BY_SYMBOLS[kind])
    assert not generated.plan.dynamic
    assert "as in the example only: with others a step is not the model's" in repr(generated)
    assert generated.output
    assert remat_gen.verify(generated.output).bitwise


def test_what_goes_another_way_at_all_lengths_is_not_written(tmp_path: Path) -> None:
    """Dynamo of torch 2.13 hands `*range(8)` on as 0, 8 and 1."""
    with pytest.raises(UnlikeStepError, match=r"outputs: output 0 is off by \d"):
        planned(tmp_path, "total(*range(8))")
    assert [path.name for path in tmp_path.iterdir()] == ["net.py"]


SHARDED = {"units": ["layers.*"], "fsdp": "2"}


@pytest.mark.parametrize(
    "options", [{}, {"units": ["layers.*"]}, SHARDED], ids=["whole", "units", "fsdp"]
)
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("F.gelu(", "F.relu(", r"outputs: output 0 is off by \d"),
        ("aten.gelu_backward", "no_such", "it fails: NameError: name 'no_such'"),
    ],
    ids=["other numbers", "an error"],
)
def test_what_is_emitted_otherwise_is_not_written(
    options: dict[str, Any],
    old: str,
    new: str,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emit, path = emission.module_text, tmp_path / "net.py"

    def broken(*given: Any) -> str:
        user, block, planned = emit(*given).partition("class PlannedBlock")
        assert old in planned
        return user + block + planned.replace(old, new.replace("{}", old))

    monkeypatch.setattr(emission, "module_text", broken)
    path.write_text(model_source("return self.head(self.body(x))"), encoding="utf-8")
    with pytest.raises(UnlikeStepError, match=told):
        remat_gen.generate(path, budget="100%", device="cpu", **options)
    assert [file.name for file in tmp_path.iterdir()] == ["net.py"]


def test_the_model_is_as_it_was(tmp_path: Path) -> None:
    """Both steps run on the caller's own model."""
    model = Net()
    before = [t.clone() for t in model.state_dict().values()]
    given = torch.randn(6, 8)
    output = tmp_path / "net_remat.py"
    remat_gen.generate(model, inputs=(given,), budget="100%", device="cpu", output=output)
    assert type(model) is Net
    assert vars(model).keys() == vars(Net()).keys()
    assert model.rows == 0
    assert all(p.grad is None for p in model.parameters())
    assert all(map(torch.equal, model.state_dict().values(), before))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = 0
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        self.rows = x.shape[0]
        return self.norm(x).sin()
