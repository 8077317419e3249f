"""Numbers that stand in forward are copied to a GPU once: the host waits for each such copy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cli_runs import Remat
from torch import Tensor

from remat_gen.capture.load.load import import_file, load
from remat_gen.verification.step import training_step

MODEL = """
import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.lin(x).sin()
        scale = torch.tensor([0.5, 1.5, -2.0, float("inf")], dtype=torch.float32)
        return (y * scale.clamp(max=3.0)).tanh().sum()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(8, 4),)
"""


def test_a_step_copies_no_number_twice(
    tmp_path: Path, remat: Remat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL, encoding="utf-8")
    ended = remat("net.py", "--target", "h200", "-o", "net_h200.py")
    assert ended.code == 0, ended.err
    text = Path("net_h200.py").read_text(encoding="utf-8")
    assert "constant = copied_once(" in text

    moved = Path("moved_remat.py")
    moved.write_text(text.replace('"cuda"', '"cpu"').replace('"cuda:0"', '"cpu"'), encoding="utf-8")
    module = import_file(moved, moved.read_text(encoding="utf-8"))
    monkeypatch.setattr(module, "check_planned", lambda *_: {})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    loaded = load(Path("net.py"), device="cpu")
    planned = module.build_model()
    planned.load_state_dict(loaded.model.state_dict())
    made: list[Tensor] = []
    tensor = torch.tensor
    monkeypatch.setattr(torch, "tensor", lambda *a, **k: made.append(tensor(*a, **k)) or made[-1])
    for _ in range(2):
        steps = [training_step(m, loaded.args, loaded.kwargs) for m in (loaded.model, planned)]
        assert torch.equal(*steps)  # type: ignore[arg-type]
    assert len(made) == 3  # eager's, the planned step's, eager's
    for ours, theirs in zip(planned.parameters(), loaded.model.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)  # type: ignore[arg-type]


def test_on_the_cpu_they_are_made_where_they_stand(
    tmp_path: Path, remat: Remat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL, encoding="utf-8")
    assert remat("net.py", "--budget", "100%", "--device", "cpu").code == 0
    assert "copied_once" not in Path("net_remat.py").read_text(encoding="utf-8")
