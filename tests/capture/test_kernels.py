"""Where torch traces arithmetic of its own, the graph has the operator that eager runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tracing import source, traced

from remat_gen.capture.as_eager.kernels import kernels_of_eager
from remat_gen.capture.as_eager.resampling import symbolic_resampling

RESAMPLING = {
    "nearest": ("aten.upsample_nearest2d", 2),
    "nearest-exact": ("aten._upsample_nearest_exact2d", 2),
    "bilinear": ("aten.upsample_bilinear2d", 2),
    "bicubic": ("aten.upsample_bicubic2d", 2),
    "linear": ("aten.upsample_linear1d", 1),
    "trilinear": ("aten.upsample_trilinear3d", 3),
}


@pytest.mark.parametrize("mode", RESAMPLING)
def test_resampling_is_one_operation_with_one_backward(tmp_path: Path, mode: str) -> None:
    kernel, dimensions = RESAMPLING[mode]
    shape = ", ".join(["2", "4", *["6"] * dimensions])
    init = f"self.conv = nn.Conv{dimensions}d(4, 4, 1)"
    forward = f"return F.interpolate(self.conv(x), scale_factor=2, mode={mode!r}).square().sum()"
    graph = traced(tmp_path, source(init, forward, f"(torch.randn({shape}),)")).graph
    resampling = [o.target for o in graph.operations if "upsample" in o.target]
    assert resampling == [f"{kernel}.default", f"{kernel}_backward.default"]


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [[3, 1, 5, 4], [2, 1, 1, 6], [2, 2, 3, 4, 5], [1, 1, 4, 1]])
def test_the_gradient_of_an_affine_grid_is_eagers(size: list[int], align: bool) -> None:
    operator = torch.ops.aten.affine_grid_generator_backward.default
    gradient = torch.randn(size[0], *size[2:], len(size) - 2)
    expected = operator(gradient, size, align)
    with symbolic_resampling():
        found = operator.py_kernels[torch._C.DispatchKey.CompositeImplicitAutograd]
        actual = found(gradient, size, align)
    assert torch.equal(actual, expected) and actual.stride() == expected.stride()


def test_torch_traces_as_before_afterwards() -> None:
    operator = torch.ops.aten.upsample_bilinear2d.vec
    before = dict(operator.py_kernels)
    with kernels_of_eager():
        assert torch._C.DispatchKey.Autograd not in operator.py_kernels
    assert operator.py_kernels == before and torch._C.DispatchKey.Autograd in before


def test_inductor_may_be_imported_while_a_model_is_traced() -> None:
    """It takes each kernel for a composite operator for a decomposition of its own."""
    text = (
        "from remat_gen.capture.as_eager.kernels import kernels_of_eager\n"
        "with kernels_of_eager():\n    import torch._inductor.lowering"
    )
    subprocess.run([sys.executable, "-c", text], check=True)
