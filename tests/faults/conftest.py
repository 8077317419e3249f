"""A folder with a small model, the generated module beside it, and the command line."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stages import At
from traced_once import traced_once as traced_once

from remat_gen.cli.app import main

MODEL = Path(__file__).parents[1] / "cli/models/small.py"


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with small.py and what a run wrote; do not change it."""
    place = tmp_path_factory.mktemp("generated")
    shutil.copy(MODEL, place)
    assert main([str(place / "small.py"), "--budget", "75%", "--quiet"]) == 0
    return place


@pytest.fixture
def folder(tmp_path: Path, generated: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of that folder, the current one."""
    shutil.copytree(generated, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def contents(folder: Path) -> Callable[[], dict[str, bytes]]:
    """Return what reads all files of the folder, hidden ones too."""
    return lambda: {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Callable[[], object]], None]]:
    """Return what lets something happen as a stage begins."""

    def happen(stage: str, what: Callable[[], object]) -> None:
        monkeypatch.setattr(
            "remat_gen.terminal.interrupt.progress_for", lambda *_, **__: At(stage, what)
        )

    yield happen
