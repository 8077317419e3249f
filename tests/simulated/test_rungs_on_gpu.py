"""Rungs on the simulated GPU: its generator is put back after running out of memory; no waits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from on_gpu_steps import waited_for

import remat_gen
from remat_gen.capture.load.load import Loaded, load
from remat_gen.verification.step import training_step

pytestmark = pytest.mark.cuda
RUNGS = "batch<=32, batch<=64, free>=300KiB"
SOURCE = """
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = x + F.dropout(F.gelu(layer(x)), 0.1, self.training)
        return x.sum()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(128, 64),)
"""


def _gradients(loaded: Loaded) -> list[torch.Tensor]:
    torch.manual_seed(1)
    loaded.model.zero_grad()
    training_step(loaded.model, (loaded.args[0][:32],), {})
    return [parameter.grad.cpu() for parameter in loaded.model.parameters()]


def test_a_rung_holds_on_a_gpu(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(SOURCE, encoding="utf-8")
    made = remat_gen.generate(path, device="cuda", budget="60%", rungs=RUNGS, effort="quick")
    assert made.output is not None
    report = remat_gen.verify(made.output)
    assert report.ok and report.bitwise, report.rows()
    eager, planned = load(path, device="cuda"), load(made.output, device="cuda")
    planned.model.load_state_dict(eager.model.state_dict())
    assert len(waited_for(planned)) <= len(waited_for(eager))
    free, _ = torch.cuda.mem_get_info()
    assert vars(planned.module)["free_bytes"]() >= free
    wanted = _gradients(eager)
    first = getattr(planned.module, _own_classes(made.text)[-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first, "forward", _out_of_memory)
        with pytest.warns(UserWarning, match="memory ran out"):
            found = _gradients(planned)
    assert all(map(torch.equal, wanted, found))


def _own_classes(text: str) -> list[str]:
    """Return the classes of the blocks that only the first rung runs, in order."""
    _, _, after = text.partition("        def run_to_32(")
    first, _, others = after.partition("        def run_to_64(")
    names = (re.findall(r"step\.run\((\w+)", part) for part in (first, others))
    own, shared = names
    return [name for name in own if name not in shared]


def _out_of_memory(*_: object) -> None:
    raise torch.OutOfMemoryError("no memory is left")
