"""`plot`: a picture beside the module, with the measured memory after `verify`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cli_runs import Remat

from remat_gen.picture.timeline_measured import remember
from remat_gen.review.verifying import verify_file


def test_a_picture_beside_the_module(existing: Path, remat: Remat) -> None:
    ended = remat("plot", existing)
    assert ended.code == 0, ended.err
    svg = existing.with_suffix(".svg").read_text()
    assert svg.startswith("<?xml") and "<!-- layers.0 -->" in svg
    assert ended.out == ""
    assert "small.py:" in ended.err and "small_remat.svg" in ended.err
    assert "remat-gen verify measures" in ended.err


def test_png_and_stdout(existing: Path, remat: Remat) -> None:
    assert remat("plot", existing, "-o", "here.png", "-q").err == ""
    assert Path("here.png").read_bytes().startswith(b"\x89PNG")
    ended = remat("plot", existing, "-o", "-", "-q")
    assert ended.out.startswith("<?xml") and ended.out.endswith("</svg>\n")


def test_what_verify_measured_is_drawn(existing: Path, remat: Remat) -> None:
    assert remat("verify", existing, "-q").code == 0
    ended = remat("plot", existing)
    assert "<!-- measured -->" in existing.with_suffix(".svg").read_text()
    assert "not yet" not in ended.err
    edited = existing.read_text().replace("class PlannedBlock", "# mine\nclass PlannedBlock")
    existing.write_text(edited)
    assert remat("plot", existing).code == 0
    assert "<!-- measured -->" not in existing.with_suffix(".svg").read_text()


def test_git_does_not_see_what_verify_measured(existing: Path) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "add", "."], check=True)
    remember(existing, verify_file(existing))
    assert list(Path().glob(".remat_gen_cache/*.json"))
    command = ["git", "status", "--porcelain", "--untracked-files=all"]
    seen = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "cache" not in seen and "measured" not in seen


def test_a_broken_cache_is_not_there(existing: Path, remat: Remat) -> None:
    Path(".remat_gen_cache").mkdir()
    Path(".remat_gen_cache/small_remat.json").write_text('{"schema": 1}')
    assert remat("plot", existing).code == 0


@pytest.mark.parametrize("name", ["picture.pdf", "picture", "nowhere/picture.svg"])
def test_other_names(existing: Path, remat: Remat, name: str) -> None:
    ended = remat("plot", existing, "-o", name)
    assert ended.code == 2
    assert "name it so with -o" in ended.err or "there is no folder nowhere" in ended.err


def test_without_matplotlib(existing: Path, remat: Remat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    ended = remat("plot", existing)
    assert ended.code == 2
    assert "pip install 'remat-gen[plot]'" in ended.err
    assert not existing.with_suffix(".svg").exists()


def test_a_model_that_is_another_one(existing: Path, remat: Remat) -> None:
    source = existing.with_name("small.py")
    source.write_text(source.read_text().replace("gelu(", "relu("))
    ended = remat("plot", existing)
    assert ended.code == 1
    assert "other operations than the plan's; run: remat-gen small.py --budget 75%" in ended.err


def test_what_is_not_ours(folder: Path, remat: Remat) -> None:
    ended = remat("plot", "small.py")
    assert ended.code == 2
    assert "was not written by remat-gen" in ended.err
