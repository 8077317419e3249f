"""A trace is the same under every torch that is supported, and torch is left as it was."""

from __future__ import annotations

from pathlib import Path

import torch
from torch._dynamo.convert_frame import GraphCaptureOutput
from torch._dynamo.functional_export import _DynamoBytecodeCodeGen
from torch._higher_order_ops.effects import _get_effect
from tracing import LINEAR, source, traced

from remat_gen.ir.graph import Phase

CHECK = torch.ops.aten._linalg_check_errors.default


def test_a_gradient_comes_with_the_strides_of_its_output(tmp_path: Path) -> None:
    graph = traced(tmp_path, source(LINEAR, "y = self.lin(x)\nreturn y.t(), y")).graph
    came = [graph.tensors[output.tangent].stride for output in graph.outputs if output.tangent]
    assert came == [(1, 8), (8, 1)]


def test_a_sum_with_a_factor_is_one_operation(tmp_path: Path) -> None:
    forward = (
        "y = self.lin(x)\ny.add_(x, alpha=0.1)\ny.addcmul_(x, x, value=0.1)\n"
        "y.addcdiv_(x, x.exp(), value=0.1)\nreturn torch.addcdiv(y, x, x.exp(), value=0.1)"
    )
    graph = traced(tmp_path, source(LINEAR, forward)).graph
    targets = [o.target.split(".")[1] for o in graph.operations if o.phase is Phase.FORWARD]
    assert targets == ["addmm", "add", "addcmul", "exp", "addcdiv", "exp", "addcdiv"]


def test_a_tensor_in_a_plain_object_is_read(tmp_path: Path) -> None:
    init = LINEAR + "\nself.held = types.SimpleNamespace(cos=torch.randn(8, 700))"
    text = source(init, "return self.lin(x * self.held.cos.sum(1))")
    assert [
        a.path for a in traced(tmp_path, "import types\n" + text).graph.inputs if "cos" in a.path
    ]


def test_torch_is_left_as_it_was(tmp_path: Path) -> None:
    def settings() -> list[object]:
        return [
            torch._functorch.config.guess_tangent_strides_as_outputs,
            torch._dynamo.config.enable_dynamo_decompositions,
            GraphCaptureOutput._get_external_refs,
            _DynamoBytecodeCodeGen.process_inputs,
            _get_effect(CHECK),
        ]

    before = settings()
    traced(tmp_path, source(LINEAR, "return self.lin(x)"))
    assert settings() == before
