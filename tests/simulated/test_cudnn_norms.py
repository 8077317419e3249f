"""cuDNN's BatchNorm is planned as eager runs it: its reserve kept, statistics updated once."""

from __future__ import annotations

from pathlib import Path

import pytest
from on_gpu_steps import SIMULATED
from simulated_norms import install, updates

import remat_gen
from remat_gen.capture.load.load import load
from remat_gen.review.generated_module import verify_file

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


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_is_eagers(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if SIMULATED:
        install(monkeypatch)
    built, inputs = KINDS[kind]
    path = tmp_path / "net.py"
    path.write_text(NET.replace("BUILT", built).replace("INPUT", inputs), encoding="utf-8")
    made = remat_gen.generate(path, device="cuda", budget="100%", recompute=["*"])
    assert made.output is not None
    forward, backward = (f"cudnn_batch_norm{of}(" in made.text for of in ("", "_backward"))
    assert forward == backward == (kind != "bfloat16")  # there eager runs PyTorch's own
    report = verify_file(made.output)
    assert report.ok and report.bitwise, report.rows()
    if kind == "bfloat16":
        return
    planned = load(made.output, device="cuda")
    updates.clear()
    planned.model(*planned.args).backward()
    again = made.text.count("torch.cudnn_batch_norm(") - 3
    assert again > 0 and sum(updates) == 3 * SIMULATED
    updates.append(0)
