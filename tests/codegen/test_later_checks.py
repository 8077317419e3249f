"""Conditions on a GPU are compared at the end of the step: reading one at once would wait.

The text for a GPU runs on the CPU here, with nothing to wait for.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from emitting import HEAD, keep_all, model_costs
from emitting_parts import target_of

from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.load.load import load
from remat_gen.capture.load.stand_in import on_gpu
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.codegen.module.emit_module import emit_body
from remat_gen.problem.step_problem import problem_of

GPU = "cuda"
SOURCE = (
    HEAD
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        y = self.up(x).tanh()
        if not y.isfinite().all():
            y = y * 2
        return self.down(y).sin().sum()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(4, 8),)
"""
)


def test_they_raise_behind_backward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, output = tmp_path / "net.py", tmp_path / "net_remat.py"
    path.write_text(SOURCE, encoding="utf-8")
    loaded = load(path, None, None, "cpu")
    traced = trace_loaded(loaded, None)
    traced = replace(traced, graph=on_gpu(traced.graph, AbsentDevice(GPU)))
    problem = problem_of(traced.graph, model_costs(traced))
    target = replace(target_of(loaded, output), device=GPU)
    text = emit_body(target, traced, problem, keep_all(problem))
    assert "check_value(step, all_all, True, " in text
    cpu = text.replace(f'"{GPU}"', '"cpu"').replace(f"is_{GPU}", "is_cpu")
    lines = [line for line in cpu.splitlines() if f"{GPU}:0" not in line]
    output.write_text("\n".join(lines).replace(GPU, "cpu"), encoding="utf-8")
    waited: list[bool] = []
    stream = SimpleNamespace(synchronize=lambda: waited.append(True))
    monkeypatch.setattr(torch.cpu, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cpu, "current_device", lambda: None)
    planned = load(output, None, None, "cpu").model
    planned(torch.randn(4, 8)).backward()
    assert waited == [True]
    loss = planned(torch.full((4, 8), torch.nan))
    with pytest.raises(ValueError, match=r"the condition in net\.py:\d+ is False, planned for"):
        loss.backward()
