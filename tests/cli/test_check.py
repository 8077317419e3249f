"""`check`: fresh, or stale with the reason, the command that mends it and what would change."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from cli_runs import Remat

from remat_gen.ir.header import read_header, text_sha256
from remat_gen.ir.plan import plan_text, read_plan
from remat_gen.plan.output import plan_path
from remat_gen.review.checking import _operations_diff

COMMAND = "run: remat-gen small.py --budget 75%"


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_fresh(existing: Path, remat: Remat) -> None:
    ended = remat("check", existing)
    assert (ended.code, ended.out) == (0, f"{existing}: up to date\n")


def test_another_line_in_the_source(existing: Path, remat: Remat) -> None:
    source = existing.with_name("small.py")
    source.write_text(source.read_text() + "\n\nEXTRA = 1\n")
    ended = remat("check", existing)
    assert ended.code == 1
    assert "stale: small.py changed; " + COMMAND in ended.out
    assert "\n+EXTRA = 1\n" in ended.out
    assert "--- " in ended.out


def test_another_model_in_the_source(existing: Path, remat: Remat) -> None:
    replace(existing.with_name("small.py"), "gelu(", "relu(")
    ended = remat("check", existing)
    assert ended.code == 1
    assert "small.py changed and the model is traced to other operations than" in ended.out
    assert COMMAND in ended.out
    assert "+++ operations of the model" in ended.out
    changed = [line for line in ended.out.splitlines() if line[:1] in ("+", "-")][2:]
    assert changed, "and nothing that the schedule runs in another order"
    assert all("gelu" in line or "relu" in line for line in changed), changed


def test_another_width_in_the_source(existing: Path, remat: Remat) -> None:
    """The schedule can be carried out as it is: shown is what would be written then."""
    source = existing.with_name("small.py")
    source.write_text(source.read_text().replace("4 * width", "3 * width"))
    ended = remat("check", existing)
    assert ended.code == 1
    assert "small.py changed and the model's operations do other work than the" in ended.out
    assert "+++ generated again" in ended.out
    assert "\n+        self.up = nn.Linear(width, 3 * width)" in ended.out
    assert "operations of the model" not in ended.out


def test_an_edited_module(existing: Path, remat: Remat) -> None:
    replace(existing, "class PlannedBlock", "# mine\nclass PlannedBlock")
    ended = remat("check", existing)
    assert ended.code == 1
    assert f"stale: {existing.name} was edited by hand; {COMMAND}" in ended.out
    assert "--force" in ended.out, "without it, what was edited stays"
    assert "\n-# mine\n" in ended.out


def test_the_command_is_said_as_it_works_from_here(
    existing: Path, remat: Remat, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = existing.with_name("small.py")
    source.write_text(source.read_text() + "\n\nEXTRA = 1\n")
    monkeypatch.chdir(existing.parent.parent)
    folder = existing.parent.name
    ended = remat("check", f"{folder}/{existing.name}")
    assert f"run: (cd {folder} && remat-gen small.py --budget 75%" in ended.out


CONFLICT = "<<<<<<< HEAD\nours\n=======\ntheirs\n>>>>>>> branch\n"


@pytest.mark.parametrize("name", ["small_remat.py", "small_remat.plan.json"])
@pytest.mark.parametrize("command", ["check", "verify", "explain"])
def test_marks_of_a_merge(existing: Path, remat: Remat, name: str, command: str) -> None:
    spoilt = existing.with_name(name)
    spoilt.write_text(spoilt.read_text() + CONFLICT)
    ended = remat(command, existing, *(["up"] if command == "explain" else []))
    assert ended.code == 2
    assert f"{name}: has the marks of a merge in it; keep one side" in ended.err


def test_lines_that_end_as_on_windows(existing: Path, remat: Remat) -> None:
    existing.write_bytes(existing.read_bytes().replace(b"\n", b"\r\n"))
    assert remat("check", existing).code == 0
    assert remat("small.py", "--budget", "75%", "-o", existing, "--quiet").code == 0


def test_an_edited_plan(existing: Path, remat: Remat) -> None:
    plan = existing.with_name("small_remat.plan.json")
    data = json.loads(plan.read_text())
    data["predicted"]["peak_bytes"] += 2**20
    plan.write_text(json.dumps(data))
    ended = remat("check", existing)
    assert ended.code == 1
    assert f"stale: {plan.name} is not the plan that it was written from; {COMMAND}" in ended.out
    assert "\n+# activation peak" in ended.out
    ended = remat("verify", existing)
    assert ended.code == 1
    assert f"{plan.name} is not the plan that it was written from; run: " in ended.err


def test_a_plan_that_cannot_run(existing: Path, remat: Remat) -> None:
    plan = existing.with_name("small_remat.plan.json")
    data = json.loads(plan.read_text())
    data["schedule"][0]["steps"].pop(0)
    plan.write_text(json.dumps(data))
    ended = remat("check", existing)
    assert ended.code == 1
    assert "and the plan cannot be carried out: " in ended.out


def test_an_input_of_another_name(existing: Path, remat: Remat) -> None:
    """The plan's own batch was called an option that the user had given: exit 2."""
    source = existing.with_name("small.py")
    plan = read_plan(plan_path(existing))
    (name, *_) = (text.rpartition(":")[0] for text in plan.dynamic)
    source.write_text(re.sub(rf"\b{name}\b", "renamed", source.read_text()))
    ended = remat("check", existing)
    assert ended.code == 1
    assert f"small.py changed and forward has other inputs; {COMMAND}" in ended.out


def test_a_plan_that_is_damaged(existing: Path, remat: Remat) -> None:
    plan = existing.with_name("small_remat.plan.json")
    data = json.loads(plan.read_text())
    data["dynamic"] = []
    plan.write_text(json.dumps(data))
    ended = remat("check", existing)
    assert ended.code == 1
    assert f"{plan.name} is not the plan that it was written from" in ended.out


def test_a_plan_that_is_laid_out_otherwise(existing: Path, remat: Remat) -> None:
    plan = existing.with_name("small_remat.plan.json")
    plan.write_text(json.dumps(json.loads(plan.read_text()), indent=4))
    assert remat("check", existing).code == 0


def test_another_torch(existing: Path, remat: Remat) -> None:
    with mock.patch("remat_gen.review.generated_module.torch_version", return_value="2.99.0"):
        ended = remat("check", existing)
    assert ended.code == 2
    assert "torch 2.99.0 traces differently, so they cannot be compared" in ended.err


def test_another_version_of_the_tool(folder: Path, remat: Remat) -> None:
    with mock.patch("remat_gen.plan.emission.__version__", "0.0.1"):
        assert remat("small.py", "--budget", "75%").code == 0
    assert "remat-gen 0.0.1" in Path("small_remat.py").read_text()
    assert remat("check", "small_remat.py").code == 0


def test_several_files_and_json(existing: Path, remat: Remat) -> None:
    """An error does not keep the others from being checked; the worst one is the exit code."""
    ended = remat("check", existing, "small.py", "--json")
    assert ended.code == 2
    fresh, refused = json.loads(ended.out)
    assert fresh["stale"] is False
    assert "was not written by remat-gen" in refused["error"]


def test_no_plan(existing: Path, remat: Remat) -> None:
    existing.with_name("small_remat.plan.json").unlink()
    ended = remat("check", existing)
    assert ended.code == 2
    assert "no such plan" in ended.err


BUILDERS = {
    "a number read in the builder": "width = int(torch.linspace(16, 16, 1).item())",
    "a constant on the module": "width = 16",
}


@pytest.mark.parametrize("line", BUILDERS.values(), ids=BUILDERS)
def test_what_needs_values_is_built_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remat: Remat, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET.replace("width = 16", line))
    assert remat("net.py", "--budget", "100%").code == 0
    assert remat("check", "net_remat.py").code == 0
    replace(Path("net.py"), "[1.0, 2.0]", "[1.0, 3.0]")
    assert remat("check", "net_remat.py").code == 1


NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        width = 16
        self.first = nn.Linear(8, width)
        self.last = nn.Linear(width, 2)
        self.scale = torch.tensor([1.0, 2.0])

    def forward(self, x):
        return (self.last(self.first(x).relu()) * self.scale).sum()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(4, 8),)
"""

WIDE = """
import torch
from torch import nn

WIDTH = 16


def build_model():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


def example_inputs():
    return (torch.randn(4, WIDTH),)
"""
CHECK = """
import resource
from pathlib import Path

from remat_gen.review.checking import check_file
from remat_gen.review.generated_module import Existing

path = Path("wide_remat.py")
print(check_file(path))
model = Existing.find(path).load(fake=True).model
print(sum(p.numel() for p in model.parameters()) * 4)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def test_a_large_model_is_checked_without_its_weights(tmp_path: Path) -> None:
    """Planned narrow; the source then says a width with which the weights take 28 GB."""
    (tmp_path / "wide.py").write_text(WIDE)
    generate = [sys.executable, "-m", "remat_gen", "wide.py", "--budget", "100%", "-q"]
    subprocess.run(generate, cwd=tmp_path, check=True)
    replace(tmp_path / "wide.py", "WIDTH = 16", "WIDTH = 60_000")
    check = [sys.executable, "-c", CHECK]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    verdict, weights, peak = done.stdout.splitlines()
    assert "wide.py changed" in verdict
    assert int(weights) > 28e9
    assert int(peak) < 2e9  # torch and the trace of a small model take about half of it


@pytest.fixture
def planned_on_a_gpu(existing: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let a module's plan say that it was measured on a GPU, where there is none."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    file = plan_path(existing)
    plan = plan_text(dataclasses.replace(read_plan(file), device="NVIDIA H200"))
    file.write_text(plan)
    header = read_header(existing.read_text())
    assert header is not None
    replace(existing, header.plan_sha256, text_sha256(plan)[:12])
    return existing


def test_a_plan_for_a_gpu_is_checked_by_its_hashes_where_there_is_none(
    planned_on_a_gpu: Path, remat: Remat
) -> None:
    ended = remat("check", planned_on_a_gpu)
    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"{planned_on_a_gpu}: up to date, by its hashes")
    found = json.loads(remat("check", planned_on_a_gpu, "--json").out)
    assert [(one["stale"], one["by_hashes"]) for one in found] == [(False, True)]


@pytest.mark.parametrize("changed", ["source", "plan", "module"])
def test_hashes_tell_what_changed(planned_on_a_gpu: Path, remat: Remat, changed: str) -> None:
    module = planned_on_a_gpu
    file, old, new, told = {
        "source": (module.with_name("small.py"), "gelu(", "relu(", "small.py changed"),
        "plan": (plan_path(module), "NVIDIA H200", "NVIDIA H100", "is not the plan that it was"),
        "module": (
            module,
            "class PlannedBlock",
            "# mine\nclass PlannedBlock",
            "was edited by hand",
        ),
    }[changed]
    replace(file, old, new)
    ended = remat("check", module)
    assert ended.code == 1
    assert told in ended.out and COMMAND in ended.out


def test_an_order_is_no_difference() -> None:
    planned, traced = ["a", "c", "gone", "b"], ["a", "b", "new", "c"]
    lines = _operations_diff(planned, traced).splitlines()[2:]
    assert [line for line in lines if line[0] in "+-"] == ["+new", "-gone"]


EXPERTS = """
import torch
import torch.nn.functional as F
from torch import Tensor, nn


@torch.library.custom_op("experts_of_a_test::turned", mutates_args=())
def turned(x: Tensor) -> Tensor:
    return x.flip(0)


turned.register_autograd(lambda _, d: turned(d))


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(torch.randn(2, 8, 8))

    def forward(self, x):
        {body}


def build_model():
    return Experts()


def example_inputs():
    return (torch.randn(4, 8, requires_grad=True),)
"""
NO_FAKE = """if torch.compiler.is_compiling():
            return (x @ self.up[0]).flip(0).square().sum()
        return turned(x @ self.up[0]).square().sum()"""
GROUPED = """offs = torch.tensor([2, 4], dtype=torch.int32)
        return F.grouped_mm(x, self.up, offs=offs).square().sum()"""


@pytest.mark.parametrize("body", [NO_FAKE, GROUPED], ids=["no fake", "products in groups"])
def test_a_kernel_that_asks_for_values(body: str, tmp_path: Path, remat: Remat) -> None:
    """Where fakes do not go on, `check` loads the model with values; those of groups do."""
    model, written = tmp_path / "experts.py", tmp_path / "experts_remat.py"
    model.write_text(EXPERTS.format(body=body))
    assert remat(model, "--budget", "100%", "-o", written).code == 0
    assert ("grouped_mm" in written.read_text()) == (body is GROUPED)
    assert remat("verify", written).code == 0
    ended = remat("check", written)
    assert (ended.code, ended.out) == (0, f"{written}: up to date\n")
