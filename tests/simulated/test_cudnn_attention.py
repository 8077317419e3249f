"""cuDNN's attention, which eager prefers on Hopper: planned for one, run on a simulated GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.nn.attention import SDPBackend, sdpa_kernel

import remat_gen
from remat_gen.capture.device.absent import HOPPER, AbsentDevice
from remat_gen.capture.load.load import load, load_fake
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.ir.graph import Graph, Tensor
from remat_gen.review.verifying import verify_file

pytestmark = pytest.mark.cuda
NET = """
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(64, 128), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(x).unflatten(-1, (8, 16)).transpose(1, 2)
        query, key, value = heads.split((4, 2, 2), 1)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        mixed = F.scaled_dot_product_attention(query, key, value, MASK, 0.1, enable_gqa=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Attention() for _ in range(3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x).float().square().mean()


def build_model() -> nn.Module:
    return Net().to(torch.bfloat16)


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(4, 48, 64, dtype=torch.bfloat16, requires_grad=True),)
"""
IN_ORDER = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]


@pytest.fixture(params=["None", "mask"])
def net(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model file, on a GPU that has cuDNN's attention."""
    monkeypatch.setenv("SIMULATED_CUDNN_ATTENTION", "1")
    path = tmp_path / "net.py"
    path.write_text(NET.replace("MASK", request.param), encoding="utf-8")
    return path


def laid_out(graph: Graph) -> list[list[Tensor]]:
    """Return what each operation makes."""
    return [[graph.tensors[o] for o in operation.outputs if o] for operation in graph.operations]


def test_a_target_is_traced_as_the_gpu_that_is_here(net: Path) -> None:
    with sdpa_kernel(IN_ORDER, set_priority=True):
        here = trace_loaded(load(net, device="cuda")).graph
    elsewhere = trace_loaded(load_fake(net, None, None, AbsentDevice("cuda", HOPPER))).graph
    targets = [operation.target for operation in elsewhere.operations]
    assert sum("cudnn_attention" in target for target in targets) == 6
    assert targets == [operation.target for operation in here.operations]
    assert laid_out(elsewhere) == laid_out(here)


def test_a_plan_for_a_target_runs_there(net: Path) -> None:
    made = remat_gen.generate(net, target="h100", budget="100%", recompute=["*"])
    assert made.output is not None and made.plan.predicted.reruns
    assert "_scaled_dot_product_cudnn_attention_backward" in made.text
    assert "rerun_random(" in made.text  # its dropout
    report = verify_file(made.output)
    assert report.bitwise, report.rows()
    assert all(row.ok is not False for row in report.rows()), report.rows()
