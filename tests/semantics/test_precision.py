"""Other precisions: autocast inside the step, parameters of other dtypes, a GradScaler outside."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pairs import Pair, make_pair_of, plan_file
from sources import model_source
from steps import Left, assert_right, assert_same, run_steps
from torch import Tensor, nn

from remat_gen.capture.load.load import load
from remat_gen.ir.errors import UsageError
from remat_gen.review.verifying import verify_file

HALVES = ["bfloat16", "float16"]
BODY = "return self.head(self.body(x))"

AUTOCAST = {
    "all of forward": (
        "with torch.autocast('cpu', torch.{half}):\n"
        "    return self.head(self.body(x)).float().mean()"
    ),
    "one layer": (
        "x = self.layers[0](x)\n"
        "with torch.autocast('cpu', torch.{half}):\n"
        "    x = self.layers[1](x)\n"
        "return self.head(x.float())"
    ),
    "a weight used twice": (
        "with torch.autocast('cpu', torch.{half}):\n"
        "    return self.layers[0](self.body(x)).float().mean()"
    ),
    "first used without a gradient": (
        "with torch.autocast('cpu', torch.{half}):\n"
        "    with torch.no_grad():\n"
        "        target = self.body(x)\n"
        "    return (self.head(self.body(x)) * target.sum()).float().mean()"
    ),
    "off inside": (
        "with torch.autocast('cpu', torch.{half}):\n"
        "    x = self.layers[0](x)\n"
        "    with torch.autocast('cpu', enabled=False):\n"
        "        x = self.layers[1](x.float())\n"
        "    return self.head(x).float()"
    ),
    "outputs of 16 bits": (
        "with torch.autocast('cpu', torch.{half}):\n    return self.head(self.body(x))"
    ),
    "softmax, norm and loss in float32": (
        "with torch.autocast('cpu', torch.{half}):\n"
        "    h = F.layer_norm(self.head(self.body(x)), (4,))\n"
        "    return F.cross_entropy(h, torch.arange(6) % 4)"
    ),
}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("forward", AUTOCAST.values(), ids=AUTOCAST)
def test_autocast_inside_forward(forward: str, half: str) -> None:
    pair = make_pair_of(model_source(forward.format(half=half)), "1GB", "per-layer")
    assert_right(pair)
    assert f".to(torch.{half})" in pair.text
    assert "aten._to_copy" not in pair.text


def test_a_cast_that_casts_nothing_is_a_copy() -> None:
    forward = (
        "y = torch.ops.aten._to_copy(x, dtype=torch.float32)\n"
        "y[0] = 0\n"
        "return self.head(self.body(x) + y)"
    )
    pair = make_pair_of(model_source(forward), "1GB", "per-layer")
    assert_right(pair)
    assert "aten._to_copy.default(p.x, dtype=torch.float32)" in pair.text


def test_a_decorated_forward() -> None:
    source = model_source(BODY).replace(
        "    def forward(self, x: Tensor) -> Any:",
        "    @torch.autocast('cpu', torch.bfloat16)\n    def forward(self, x: Tensor) -> Any:",
    )
    assert_right(make_pair_of(source, "1GB", "per-layer"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_a_model_of_another_dtype(dtype: str) -> None:
    source = model_source(
        BODY,
        init="self.layers[0].drop = nn.Identity()",
        inputs=f"(torch.randn(6, 8, dtype=torch.{dtype}),)",
    ).replace("return Model()", f"return Model().to(torch.{dtype})")
    assert_right(make_pair_of(source, "1GB", "per-layer"))


MIXED = {
    "a layer in bfloat16": (
        "self.layers[0].bfloat16()",
        "x = self.layers[0](x.bfloat16()).float()\nreturn self.head(self.layers[1](x))",
    ),
    "a layer in float64": (
        "self.layers[1].double()",
        "x = self.layers[1](self.layers[0](x).double())\nreturn self.head(x.float()).double()",
    ),
    "a sum of two dtypes": (
        "self.bias = nn.Parameter(torch.linspace(0, 1, 8, dtype=torch.float64))",
        "return self.body(x) * self.bias",
    ),
    "an integer and a bool that promote": ("", "return self.body(x) * torch.arange(8) * (x > 0)"),
}


@pytest.mark.parametrize(("init", "forward"), MIXED.values(), ids=MIXED)
def test_mixed_dtypes(init: str, forward: str) -> None:
    assert_right(make_pair_of(model_source(forward, init=init), "1GB", "per-layer"))


def test_a_grad_scaler_outside() -> None:
    source = model_source(AUTOCAST["all of forward"].format(half="float16"))
    pair = make_pair_of(source, "1GB", "per-layer")
    left: list[Left] = []
    for model in pair.models():
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def backward(loss: Tensor, scaler=scaler, optimizer=optimizer) -> None:  # type: ignore[no-untyped-def]
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=False)

        left.append(run_steps(model, pair, 3, backward))
        left[-1].tensors.update({f"parameter {n}": p for n, p in model.named_parameters()})
    assert_same(*left)


def test_an_overflow_is_eagers() -> None:
    """Infinities in float16 reach the scaler as they do from eager, and it skips the step."""
    source = model_source(AUTOCAST["all of forward"].format(half="float16"))
    pair = make_pair_of(source, "1GB", "per-layer")
    skipped = []
    for model in pair.models():
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(0)
        scaler.scale(model(*pair.inputs()[0])).backward()
        scaler.step(optimizer)
        scaler.update()
        skipped.append(scaler.get_scale())
    assert skipped == [2.0**29, 2.0**29]


AROUND = """

def step_context():
    return torch.autocast("cpu", torch.{half})
"""
CALLED_IN = {
    "logits": "return self.head(self.body(x))",
    "loss": "return self.head(self.body(x)).float().square().mean()",
    "a weight used twice": "return self.head(self.layers[0](self.body(x)))",
    "off inside": (
        "x = self.layers[0](x)\n"
        "with torch.autocast('cpu', enabled=False):\n"
        "    x = self.layers[1](x.float())\n"
        "return self.head(x)"
    ),
    "to float16 inside": (
        "with torch.autocast('cpu', torch.float16):\n"
        "    x = self.layers[0](x)\n"
        "return self.head(self.layers[1](x.float()))"
    ),
}


def _around(forward: str, half: str = "bfloat16") -> Pair:
    return make_pair_of(model_source(forward) + AROUND.format(half=half), "1GB", "per-layer")


def _in_autocast(half: str) -> Callable[[nn.Module], nn.Module]:
    """Let a model be called under autocast, and backward without."""

    class Around(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, *args: Any) -> Any:
            with torch.autocast("cpu", getattr(torch, half)):
                return self.model(*args)

    return Around


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("forward", CALLED_IN.values(), ids=CALLED_IN)
def test_autocast_around_the_call(forward: str, half: str) -> None:
    pair = _around(forward, half)
    assert pair.reruns > 0
    original, planned = map(_in_autocast(half), pair.models())
    assert_same(run_steps(original, pair), run_steps(planned, pair))


def test_autocast_around_the_call_is_asserted() -> None:
    pair = _around(CALLED_IN["logits"])
    _, planned = pair.models()
    args, _ = pair.inputs()
    with pytest.raises(
        ValueError, match=r"autocast is off, planned for torch\.bfloat16(.|\n)*remat-gen"
    ):
        planned(*args)
    cached = r"cache_enabled is False, planned for True \(step_context\)"
    with (
        torch.autocast("cpu", torch.bfloat16, cache_enabled=False),
        pytest.raises(ValueError, match=cached),  # else casts of one weight are added up in 16 bits
    ):
        planned(*args)
    with (
        torch.autocast("cpu", torch.float16),
        pytest.raises(ValueError, match=r"autocast is torch\.float16, planned for torch\.bfloat16"),
    ):
        planned(*args)


def test_verify_runs_the_step_in_its_context(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(model_source(CALLED_IN["logits"]) + AROUND.format(half="bfloat16"))
    plan_file(path, "1GB", "per-layer")
    report = verify_file(tmp_path / "model_remat.py")
    assert report.ok and report.bitwise


@pytest.mark.parametrize(
    ("context", "says"),
    [
        (
            "def step_context():\n    return torch.no_grad()\n",
            "returned a no_grad; return torch.autocast",
        ),
        (
            "def step_context():\n    return 1 / 0\n",
            r"model\.py:\d+: step_context\(\) failed: Zero",
        ),
        ("step_context = 3\n", "step_context is an int; it must be a function"),
        ("def step_context():\n    return torch.autocast('xpu')\n", "autocast for xpu"),
    ],
)
@pytest.mark.limit(
    "other contexts in `step_context()` than autocast",
    "refused when planning",
)
def test_other_contexts_are_refused(tmp_path: Path, context: str, says: str) -> None:
    path = tmp_path / "model.py"
    path.write_text(f"{model_source(BODY)}\n\n{context}")
    with warnings.catch_warnings(action="ignore"), pytest.raises(UsageError, match=says):
        load(path, None, None, "cpu")
