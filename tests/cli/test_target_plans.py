"""Plans for a device that is not here: `--device fake --target`."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
import torch
from cli_runs import Remat

from remat_gen.capture.load.load import import_file, load
from remat_gen.ir.plan import Modelled, read_plan
from remat_gen.verification.step import training_step

CPU = """
[some_cpu]
name = "Some CPU"
device = "cpu"
memory_bytes = 2_000_000_000
alignment_bytes = 1
launch_us = 1.0
bytes_per_s = 1e10
source = "made up"

[some_cpu.flops_per_s]
float32 = 1e11
"""
HUGE = """
import torch
from torch import Tensor, nn


class Huge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(1 << 20, 1 << 20)  # 4 TiB
        self.down = nn.Linear(1 << 20, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x))).mean()


def build_model() -> nn.Module:
    return Huge().to(torch.bfloat16)


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(8, 1 << 20, dtype=torch.bfloat16),)
"""

LLAMA = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def build_model():
    config = LlamaConfig(
        vocab_size=128256, hidden_size=8192, intermediate_size=28672, num_hidden_layers=2,
        num_attention_heads=64, num_key_value_heads=8, use_cache=False,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16)


def example_inputs():
    ids = torch.randint(128256, (1, 2048))
    return {"input_ids": ids, "labels": ids.clone()}
"""


@pytest.fixture
def h200(folder: Path, remat: Remat) -> Path:
    """Return small_remat.py, planned for an H200."""
    ended = remat("small.py", "--device", "fake", "--target", "h200", "--budget", "75%")
    assert ended.code == 0, ended.err
    return folder / "small_remat.py"


def test_plan_and_header_say_that_costs_are_modelled(h200: Path) -> None:
    plan = read_plan(h200.with_suffix(".plan.json"))
    assert plan.modelled == Modelled("h200", "cuda", (9, 0))
    assert plan.device == "NVIDIA H200 SXM" and plan.alignment_bytes == 512
    assert all(cost.modelled for cost in plan.costs.values())
    assert "NVIDIA H200 SXM (modelled, not measured)" in h200.read_text().splitlines()[2]


def test_what_looks_at_plans_needs_no_gpu(h200: Path, remat: Remat) -> None:
    text = h200.read_bytes()
    assert remat("check", h200).code == 0
    assert remat("explain", h200, "layers.0.*").code == 0
    assert remat("plot", h200, "-o", "timeline.png").code == 0
    again = remat("small.py", "--target", "h200", "--budget", "75%", "-o", "again_remat.py")
    assert again.code == 0
    assert remat("diff", h200, "again_remat.py").code == 0
    assert Path("again_remat.py").read_bytes().count(b"\n") == text.count(b"\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to run it on")
def test_what_runs_it_says_that_there_is_no_gpu(h200: Path, remat: Remat) -> None:
    ended = remat("verify", h200)
    assert ended.code == 2
    assert "is planned for NVIDIA H200 SXM, and PyTorch sees no GPU here" in ended.err


def test_an_edited_model_is_stale(h200: Path, remat: Remat) -> None:
    source = Path("small.py")
    source.write_text(source.read_text().replace("F.gelu", "F.silu"))
    ended = remat("check", h200)
    assert ended.code == 1
    assert "--device fake --target h200" in ended.err + ended.out


def test_what_is_planned_for_a_gpu_is_right_on_the_cpu(h200: Path) -> None:
    """Nothing in this model's trace is a GPU's own: said to be on the CPU, it equals eager."""
    moved = h200.with_name("moved_remat.py")
    moved.write_text(h200.read_text().replace('"cuda"', '"cpu"'))
    module = import_file(moved, moved.read_text())
    module.check_planned = lambda *_: {}  # type: ignore[attr-defined]
    loaded = load(Path("small.py"), device="cpu")
    planned = module.build_model()
    planned.load_state_dict(loaded.model.state_dict())
    losses = [training_step(m, loaded.args, loaded.kwargs) for m in (loaded.model, planned)]
    assert torch.equal(*losses)  # type: ignore[arg-type]
    wanted = dict(loaded.model.named_parameters())
    for name, parameter in planned.named_parameters():
        assert torch.equal(parameter.grad, wanted[name].grad), name


def test_a_cpu_that_is_not_here_can_be_verified_here(folder: Path, remat: Remat) -> None:
    Path("some_cpu.toml").write_text(CPU)
    ended = remat("small.py", "--target", "some_cpu.toml", "--budget", "75%")
    assert ended.code == 0, ended.err
    assert "Some CPU: its costs are modelled, nothing was measured" in ended.err
    assert remat("check", "small_remat.py").code == 0
    verified = remat("verify", "small_remat.py", "--json")
    assert verified.code == 0, verified.out
    assert json.loads(verified.out)["bitwise"]


def test_modelled_costs_are_not_taken_for_measured_ones(folder: Path, remat: Remat) -> None:
    Path("some_cpu.toml").write_text(CPU.replace("Some CPU", "cpu"))  # as the real one is called
    assert remat("small.py", "--target", "some_cpu.toml", "--budget", "75%").code == 0
    ended = remat("small.py", "--device", "cpu", "--budget", "75%", "--json")
    assert ended.code == 0
    assert not json.loads(ended.out)["costs_reused"] and not json.loads(ended.out)["modelled"]
    plan = read_plan(Path("small_remat.plan.json"))
    assert plan.modelled is None
    assert '"modelled"' not in Path("small_remat.plan.json").read_text()  # as before it was known


def test_nothing_is_allocated(folder: Path, remat: Remat) -> None:
    Path("huge.py").write_text(HUGE)
    ended = remat("huge.py", "--target", "h200", "--budget", "100%", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["predicted"]["eager_peak_bytes"] > 2**41  # the weight's gradient


def test_layers_of_a_model_of_70_billion_parameters(folder: Path, remat: Remat) -> None:
    """All 80 of them are planned by benchmarks/targets.py; their weights here are 7.6 GB."""
    Path("llama.py").write_text(LLAMA)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    options = ("--budget", "75%", "--effort", "quick", "--static", "--json")
    ended = remat("llama.py", "--target", "h200", *options)
    assert ended.code == 0, ended.err
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < 2**30
    predicted = json.loads(ended.out)["predicted"]
    assert 10**9 < predicted["peak_bytes"] <= 0.75 * predicted["eager_peak_bytes"]
    assert remat("check", "llama_remat.py").code == 0


def test_without_a_budget_it_is_the_memory_of_the_target(folder: Path, remat: Remat) -> None:
    ended = remat("small.py", "--target", "rtx4090", "--optimizer", "sgd")
    assert ended.code == 0, ended.err
    plan = read_plan(Path("small_remat.plan.json"))
    assert plan.asked.budget == "device memory 24GB"
    assert "--device-memory 24GB --optimizer sgd" in plan.asked.command
    headroom = 1_000_000_000 + 24_000_000_000 // 20
    assert 21_790_000_000 < plan.asked.budget_bytes < 24_000_000_000 - headroom  # the parameters


def test_a_sweep_is_for_a_target_too(folder: Path, remat: Remat) -> None:
    ended = remat("sweep", "small.py", "--target", "a100", "--points", "2", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["device"] == "NVIDIA A100 SXM 80GB"


def test_targets_of_pyproject(folder: Path, remat: Remat) -> None:
    (folder / "devices").mkdir()
    (folder / "devices" / "some_cpu.toml").write_text(CPU)
    (folder / "pyproject.toml").write_text(
        '[tool.remat-gen.targets.small]\nsource = "small.py"\nbudget = "75%"\n'
        'target = "devices/some_cpu.toml"\n'
    )
    assert remat().code == 0
    plan = read_plan(folder / "small_remat.plan.json")
    assert plan.modelled == Modelled("devices/some_cpu.toml", "cpu")
    assert str(folder) not in (folder / "small_remat.plan.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--target", "h300"], "known are h200, h100, a100, rtx4090; or give a .toml file"),
        (["--target", "none.toml"], "none.toml: no such target file"),
        (["--device", "fake"], "--device fake plans for a device that is not here: name it"),
        (["--device", "cpu", "--target", "h200"], "need not be here: leave out --device cpu"),
    ],
)
def test_refusals(arguments: list[str], said: str, folder: Path, remat: Remat) -> None:
    ended = remat("small.py", "--budget", "75%", *arguments)
    assert ended.code == 2
    assert said in ended.err
    assert not Path("small_remat.py").exists()


AUTOCAST = 'def step_context():\n    return torch.autocast("cuda", torch.bfloat16)\n'


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "def build_model",
            AUTOCAST + "\n\ndef build_model",
            "autocast for a GPU cannot be traced",
        ),
        ("x = layer(x)", "with torch.autocast('cuda'):\n                x = layer(x)", "autocast"),
        ("return torch.randn(256, 32)", "return torch.randn(256, 32, device='cuda')", "leave out"),
    ],
)
def test_what_needs_the_gpu_is_refused(
    old: str, new: str, said: str, folder: Path, remat: Remat
) -> None:
    source = Path("small.py")
    text = source.read_text().replace(old, new)
    assert text != source.read_text()
    source.write_text(text)
    ended = remat("small.py", "--target", "h200", "--budget", "75%")
    assert ended.code == 2
    assert said in ended.err, ended.err
