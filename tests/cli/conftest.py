"""A folder with a small model, and the command line as a function."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_runs import Ended, Remat
from committed import gpt_remat as gpt_remat
from traced_once import traced_once as traced_once

from remat_gen.cli.app import main

MODELS = Path(__file__).parent / "models"


@pytest.fixture
def remat(capsys: pytest.CaptureFixture[str]) -> Remat:
    """Run the command line in this process."""

    def run(*arguments: object) -> Ended:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder, the current one, with small.py in it."""
    shutil.copy(MODELS / "small.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return small_remat.py beside its original and its plan, generated once; do not change it."""
    place = tmp_path_factory.mktemp("planned")
    shutil.copy(MODELS / "small.py", place)
    assert main([str(place / "small.py"), "--budget", "75%", "--quiet"]) == 0
    return place / "small_remat.py"


@pytest.fixture
def existing(folder: Path, planned: Path) -> Path:
    """Return a copy of the generated module, with all that belongs to it."""
    for name in ("small_remat.py", "small_remat.plan.json"):
        shutil.copy(planned.with_name(name), folder)
    return folder / "small_remat.py"
