"""The first run on a GPU is rehearsed, so that nothing in it is new on the day."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from on_gpu_steps import simulated_only

pytestmark = [pytest.mark.cuda, simulated_only]
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu" / "first_run.py"


def rehearsed(out: Path, *stages: str) -> tuple[int, str]:
    words = [sys.executable, str(SCRIPT), "--small", "--out", str(out), *stages]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("stage", "facts"),
    [
        ("import", 0),
        ("probe", 10),
        ("strides", 1),
        ("tests", 0),
        ("gpt", 0),
        ("on_gpu_gpt", 0),
        ("calibrate", 0),
        ("gpt2_medium", 1),
        ("llama_1b", 1),
    ],
)
def test_a_stage_finds_what_it_is_for(stage: str, facts: int, tmp_path: Path) -> None:
    code, told = rehearsed(tmp_path, stage)
    found = json.loads((tmp_path / f"{stage}.json").read_text(encoding="utf-8"))
    log = (tmp_path / f"{stage}.log").read_text(encoding="utf-8")
    assert code == 0 and told.startswith(f"{stage} "), told + log
    assert len(found["found"]) == facts and '"error"' not in log, log


def test_a_stage_that_fails_does_not_stop_the_next(tmp_path: Path) -> None:
    """Compiled parts need Triton, which no simulated GPU has."""
    code, told = rehearsed(tmp_path, "compile", "import")
    lines = [line.split()[:2] for line in told.splitlines()]
    assert code == 1 and lines == [["compile", "FAILED"], ["import", "ok"]], told
    assert "Triton" in (tmp_path / "compile.log").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "compile.json").read_text(encoding="utf-8"))["codes"] == [2]


def test_stages_are_named_and_short() -> None:
    words = [sys.executable, str(SCRIPT), "--list"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    limits = [int(line.split()[1]) for line in listed.splitlines()]
    assert len(limits) == 20 and max(limits) <= 9 * 60
    wrong = subprocess.run([*words[:2], "nothing"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "no stage is called nothing" in wrong.stdout
