"""RMSNorm is one kernel on a GPU, with one number of each row to keep, and arithmetic on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._decomp import decomposition_table
from tracing import source, traced

from remat_gen.capture.as_eager.rms_norm import rms_norm
from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.load.load import load_fake
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.ir.graph import Graph

aten = torch.ops.aten
KERNEL = ["aten._fused_rms_norm.default", "aten._fused_rms_norm_backward.default"]
INPUTS = "(torch.randn(4, 6, 16, dtype=torch.bfloat16),)"


def on_gpu(folder: Path, norm: str, forward: str, inputs: str = INPUTS) -> Graph:
    path = folder / "net.py"
    init = f"self.norm = {norm}"
    path.write_text(source(init, f"return {forward}.float().sum()", inputs), encoding="utf-8")
    return trace_loaded(load_fake(path, None, None, AbsentDevice("cuda"))).graph


def kernels(graph: Graph) -> list[str]:
    return [o.target for o in graph.operations if "rms_norm" in o.target]


@pytest.mark.parametrize(
    ("norm", "inputs"),
    [
        ("nn.RMSNorm(16).bfloat16()", INPUTS),
        ("nn.RMSNorm((6, 16), eps=1e-3)", "(torch.randn(4, 6, 16),)"),
        ("nn.RMSNorm(6)", "(torch.randn(4, 16, 6, 6),)"),
    ],
)
def test_a_gpu_has_a_kernel(norm: str, inputs: str, tmp_path: Path) -> None:
    graph = on_gpu(tmp_path, norm, "self.norm(x)", inputs)
    assert kernels(graph) == KERNEL
    forward, backward = (o for o in graph.operations if o.target in KERNEL)
    rstd = graph.tensors[forward.outputs[1]]
    assert rstd.dtype == "float32" and graph.tensors[forward.outputs[0]].device == "cuda:0"
    assert rstd.storage in graph.reads(backward)
    assert backward.args[-1] == (False, True)  # nobody wants the gradient of the input


def test_it_has_no_weight(tmp_path: Path) -> None:
    inputs = "(torch.randn(4, 16, requires_grad=True),)"
    graph = on_gpu(tmp_path, "nn.RMSNorm(16, elementwise_affine=False)", "self.norm(x)", inputs)
    assert kernels(graph) == KERNEL
    backward = next(o for o in graph.operations if o.target == KERNEL[1])
    assert backward.args[-1] == (True, False)


@pytest.mark.parametrize(
    ("norm", "inputs"),
    [
        ("nn.RMSNorm(16)", INPUTS),  # the weight in 32 bits, the input in 16
        ("nn.RMSNorm(6)", "(torch.randn(4, 16, 6, 6).to(memory_format=torch.channels_last),)"),
    ],
    ids=["two dtypes", "channels last"],
)
def test_where_eager_does_not_run_it(norm: str, inputs: str, tmp_path: Path) -> None:
    graph = on_gpu(tmp_path, norm, "self.norm(x)", inputs)
    assert kernels(graph) == [] and len(graph.operations) > 5


def test_a_cpu_has_none(tmp_path: Path) -> None:
    text = source(
        "self.norm = nn.RMSNorm(16)", "return self.norm(x).sum()", "(torch.randn(4, 16),)"
    )
    assert kernels(traced(tmp_path, text).graph) == []


def test_gradients_are_those_of_the_norm() -> None:
    """The kernels of GPUs do not run here: torch's own arithmetic in place of them does."""
    torch.manual_seed(0)
    given = [torch.randn(shape, dtype=torch.float64) for shape in [(3, 4, 6), (6,), (3, 4, 6)]]
    backward = decomposition_table[aten._fused_rms_norm_backward.default]

    def gradients(norm: object) -> tuple[Tensor, ...]:
        x, weight, incoming = (t.clone().requires_grad_(t is not given[2]) for t in given)
        assert callable(norm)
        normed = norm(x, (6,), weight, 1e-3)
        return normed.detach(), *torch.autograd.grad(normed, (x, weight), incoming)

    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_fused_rms_norm_backward", backward, "CPU")
        found = gradients(rms_norm)
    # the two sum up in another order: rounding of float64
    torch.testing.assert_close(found, gradients(F.rms_norm), rtol=1e-12, atol=1e-12)
