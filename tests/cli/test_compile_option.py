"""`--compile`: asked for in all places, refused where nothing can be compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch._inductor
from cli_runs import Remat

import remat_gen
from remat_gen.ask.config import read_targets
from remat_gen.ask.request import Request


def test_a_target_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.remat-gen.targets.small]\nsource = "small.py"\nbudget = "75%"\ncompile = true\n'
    )
    (target,) = read_targets(tmp_path)
    assert target.request.compiled
    command = "remat-gen small.py --budget 75% --compile -o small_remat.py"
    assert target.request.command() == command


def test_the_call_in_python_asks_for_it() -> None:
    limit = remat_gen.ask.budget.parse_budget("75%")
    request = Request(Path("m.py"), limit, Path("r.py"), model="Net", compiled=True, live=True)
    assert "compile=True" in request.command()


def test_without_a_compiler_nothing_is_planned(
    remat: Remat, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise RuntimeError("InvalidCxxCompiler: no working C++ compiler found")

    monkeypatch.setattr(torch._inductor, "compile", broken)
    ended = remat("small.py", "--budget", "75%", "--compile")
    assert ended.code == 2
    assert "--compile needs torch.compile, which fails here (InvalidCxxCompiler" in ended.err
    assert "install one, or plan without --compile" in ended.err
    assert not list(folder.glob("small_remat*"))


def test_a_device_that_is_not_here_gets_modelled_parts(remat: Remat, folder: Path) -> None:
    """Nothing is compiled for it; the plan says that its costs are modelled."""
    ended = remat("small.py", "--budget", "75%", "--compile", "--target", "h200", "--json")
    assert ended.code == 0, ended.err
    text = (folder / "small_remat.py").read_text()
    assert "@compiled\ndef fused_" in text
    assert "compiled    " in ended.err
    again = remat("check", "small_remat.py")
    assert again.code == 0, again.out + again.err
