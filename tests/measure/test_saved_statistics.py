"""What norms save is as large as the graph says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.load.load import load, load_fake
from remat_gen.capture.profile.calls import bind, resolve
from remat_gen.capture.profile.synthesize import Synthesizer
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.ir.graph import Phase

TEXT = """
import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.groups = nn.GroupNorm(2, 8)
        self.layer = nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(self.groups(self.norm(self.conv(x))))
        return x.float().square().sum()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(2, 3, 8, 8),)
"""
AUTOCAST = '\n\ndef step_context():\n    return torch.autocast("cpu", torch.bfloat16)\n'
HALF = TEXT.replace("return Net()", "return Net().to(torch.bfloat16)").replace(
    "8, 8),)", "8, 8, dtype=torch.bfloat16),)"
)


OTHER_NORMS = (TEXT + AUTOCAST).replace(
    "nn.BatchNorm2d(8)",
    """nn.Sequential(
            nn.BatchNorm2d(8, affine=False),
            nn.BatchNorm2d(8, track_running_stats=False),
            nn.BatchNorm2d(8, affine=False, track_running_stats=False),
            nn.InstanceNorm2d(8, affine=True),
        )""",
)


@pytest.mark.parametrize(
    "text",
    [TEXT, TEXT + AUTOCAST, HALF, OTHER_NORMS],
    ids=["32", "autocast", "16", "others, autocast"],
)
def test_results_are_as_the_graph_says(text: str, tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(text, encoding="utf-8")
    traced = trace_loaded(load(path, device="cpu"))
    graph, synthesizer = traced.graph, Synthesizer(traced.graph, traced.examples)
    for operation in graph.operations:
        args, kwargs = bind(operation, synthesizer.inputs(operation))
        with torch.no_grad():
            made = resolve(operation.target)(*args, **kwargs)
        # a BatchNorm's fourth and fifth are running statistics, which it writes in place
        for name, result in [
            *zip(operation.outputs, [made] if operation.single else made, strict=True)
        ][:3]:
            if name:
                said = graph.tensors[name].dtype, graph.storages[graph.tensors[name].storage].nbytes
                found = str(result.dtype)[6:], result.untyped_storage().nbytes()
                assert said == found, f"{operation.target}: {name}"


def test_a_gpu_saves_float32(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(HALF, encoding="utf-8")
    graph = trace_loaded(load_fake(path, None, None, AbsentDevice("cuda"))).graph
    saved = {
        o.target.split(".")[1]: [graph.tensors[name] for name in o.outputs[1:3] if name]
        for o in graph.operations
        if "norm" in o.target and o.phase is Phase.FORWARD
    }
    found = {
        kind: [(t.dtype, graph.storages[t.storage].nbytes) for t in tensors]
        for kind, tensors in saved.items()
    }
    assert found == {
        "_native_batch_norm_legit_functional": [("float32", 4 * 8)] * 2,
        "native_group_norm": [("bfloat16", 2 * 2 * 2)] * 2,
        "native_layer_norm": [("float32", 4 * 2 * 8 * 6)] * 2,
    }
