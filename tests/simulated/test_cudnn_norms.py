"""cuDNN's BatchNorm is planned as eager runs it: its reserve kept, statistics updated once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from on_gpu_steps import SIMULATED

import remat_gen
from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.load.load import load, load_fake
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.review.verifying import verify_file

if SIMULATED:
    from simulated_gpu.simulated_norms import install, updates

pytestmark = pytest.mark.cuda
NET = """
import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms):
            x = torch.relu(norm(conv(x)))
        return x.float().square().mean()


def build_model() -> nn.Module:
    net = Net()
    BUILT
    return net


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(4, 4, 8, 8)INPUT,)
"""
KINDS = {
    "float32": ("pass", ""),
    "channels_last": (
        "net.to(memory_format=torch.channels_last)",
        ".to(memory_format=torch.channels_last)",
    ),
    "float16, float32 weights": ("net.convs.half()", ".half()"),
    "bfloat16": ("net.convs.bfloat16()", ".bfloat16()"),
}


@pytest.fixture(params=KINDS)
def net(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model file of a kind that names its folder, on a GPU that has cuDNN's norms."""
    if SIMULATED:
        install(monkeypatch)
    built, inputs = KINDS[request.param]
    path = tmp_path / "net.py"
    path.write_text(NET.replace("BUILT", built).replace("INPUT", inputs), encoding="utf-8")
    return path


def calls_cudnn(text: str) -> bool:
    forward, backward = (f"cudnn_batch_norm{of}(" in text for of in ("", "_backward"))
    assert forward == backward
    return forward


def test_the_kernel_is_eagers(net: Path) -> None:
    made = remat_gen.generate(net, device="cuda", budget="100%", recompute=["*"])
    assert made.output is not None
    has = "bfloat16()" not in net.read_text(encoding="utf-8")  # there eager runs PyTorch's own
    assert calls_cudnn(made.text) == has
    report = verify_file(made.output)
    assert report.ok and report.bitwise, report.rows()
    if SIMULATED and has:
        planned = load(made.output, device="cuda")
        updates.clear()
        planned.model(*planned.args).backward()
        again = made.text.count("torch.cudnn_batch_norm(") - 3
        assert again > 0 and sum(updates) == 3
        updates.append(0)


def test_a_target_is_traced_as_the_gpu_that_is_here(net: Path) -> None:
    here = trace_loaded(load(net, device="cuda")).graph
    elsewhere = trace_loaded(load_fake(net, None, None, AbsentDevice("cuda"))).graph
    assert [o.target for o in elsewhere.operations] == [o.target for o in here.operations]
    for mine, theirs in zip(elsewhere.operations, here.operations, strict=True):
        for name, other in zip(mine.outputs, theirs.outputs, strict=True):
            if name and not name.endswith("_reserve"):  # cuDNN says how large it is
                one, two = elsewhere.tensors[name], here.tensors[other or ""]
                strides = (
                    one.stride if SIMULATED else two.stride
                )  # whose convolutions are laid out as cuDNN's
                assert one == replace(two, stride=strides)


def test_a_plan_for_a_target_runs_there(net: Path) -> None:
    made = remat_gen.generate(net, target="h100", budget="100MB", recompute=["*"])
    assert made.output is not None and made.plan.predicted.reruns
    report = verify_file(made.output)
    assert report.ok and report.bitwise, report.rows()
