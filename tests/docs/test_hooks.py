"""The pre-commit hook of this repository, and the configurations that docs/reviewing.md shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from fences import PAGES, read_page

from remat_gen.cli.app import main

ROOT = PAGES.parent
MODEL = """
import torch
from torch import nn


def build_model():
    return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))


def example_inputs():
    return (torch.randn(16, 8),)
"""
TARGET = '[tool.remat-gen.targets.net]\nsource = "net.py"\nbudget = "100%"\n'


def hook() -> dict[str, Any]:
    (found,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    return dict(found)


def shown(title: str) -> Any:
    (fence,) = [f for f in read_page(PAGES / "reviewing.md").fences if f.title == title]
    return yaml.safe_load(fence.text)


def run_entry() -> int:
    tool, *arguments = shlex.split(hook()["entry"])
    assert tool == "remat-gen"
    return main(arguments)


def test_the_hook_runs_and_fails_where_a_module_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    Path("pyproject.toml").write_text(TARGET)
    assert main(["--quiet"]) == 0
    assert run_entry() == 0
    Path("net.py").write_text(MODEL.replace("GELU", "ReLU"))
    assert run_entry() == 1


@pytest.mark.parametrize("name", ["a/model.py", "model_remat.plan.json", "pyproject.toml"])
def test_the_hook_runs_on_what_decides(name: str) -> None:
    assert re.search(hook()["files"], name)
    assert not re.search(hook()["files"], "README.md")


def test_the_page_names_the_hook() -> None:
    (repo,) = shown(".pre-commit-config.yaml")["repos"]
    assert [each["id"] for each in repo["hooks"]] == [hook()["id"]]
    (local,) = shown("local-hook.yaml")["repos"][0]["hooks"]
    assert (local["id"], local["entry"]) == (hook()["id"], hook()["entry"])
    assert local["language"] == "system" and local["pass_filenames"] is False


def test_the_workflow_runs_the_check() -> None:
    workflow = shown(".github/workflows/remat.yml")
    steps = workflow["jobs"]["check"]["steps"]
    assert "remat-gen check" in [step.get("run") for step in steps]
