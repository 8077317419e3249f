"""Progress: lines without a terminal, bars on one, nothing when quiet."""

from __future__ import annotations

import io
import re

import pytest
from cli_runs import Remat
from rich.console import Console

from remat_gen.solver.law.search_types import Standing
from remat_gen.terminal import progress as module
from remat_gen.terminal.progress import Terminal, progress_for, standing_text

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLOURS = re.compile(r"\x1b\[[0-9;]*3[0-7]m")


def _report(console: Console, quiet: bool = False) -> None:
    with progress_for(console, quiet=quiet) as progress:
        step = progress.stage("profile")
        step("aten.mm", 1, 2)
        step("aten.add", 2, 2)
        step = progress.stage("solve")
        progress.news(Standing(None, 1.0))
        step("short search", 1, 3)
        progress.news(Standing(1.25, 1.0))
        step("rockmate: a name that is too long for what is left of a line", 2, 3)
        progress.news(Standing(1.103, 1.066))


def test_lines_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LINES", 0.0)
    stream = io.StringIO()
    _report(Console(file=stream))
    assert stream.getvalue().splitlines() == [
        "remat-gen: profile",
        "remat-gen: profile 1/2 aten.mm",
        "remat-gen: profile 2/2 aten.add",
        "remat-gen: solve",
        "remat-gen: solve: none fits yet, bound × 1.000",
        "remat-gen: solve 1/3 short search: none fits yet, bound × 1.000",
        "remat-gen: solve: best × 1.250, bound × 1.000, gap 25.0 %",
        "remat-gen: solve 2/3 rockmate: a name that is too long for what is left of a line: "
        "best × 1.250, bound × 1.000, gap 25.0 %",
        "remat-gen: solve: best × 1.103, bound × 1.066, gap 3.5 %",
    ]


def test_lines_are_not_too_many() -> None:
    stream = io.StringIO()
    _report(Console(file=stream))
    assert stream.getvalue().splitlines() == ["remat-gen: profile", "remat-gen: solve"]


@pytest.mark.parametrize("no_color", ["", "1"])
def test_bars_on_a_terminal(no_color: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = io.StringIO()
    _report(Console(file=stream, force_terminal=True, width=80))
    text = stream.getvalue()
    assert bool(_COLOURS.search(text)) is not bool(no_color)
    lines = _ESCAPES.sub("", text).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= 80
    assert any(re.match(r"profile +━+ 2/2 0:00:00 aten\.add$", line.rstrip()) for line in lines)
    assert any(re.match(r"solve +.+ 2/3 0:00:00 rockmate: a name that .*…", x) for x in lines)
    assert any(re.match(r"profile +━+ 2/2 0:00:00$", line.rstrip()) for line in lines)  # done
    assert "           best × 1.103, bound × 1.066, gap 3.5 %" in [line.rstrip() for line in lines]


def test_silence() -> None:
    stream = io.StringIO()
    _report(Console(file=stream), quiet=True)
    assert stream.getvalue() == ""


def test_a_bound_above_the_best_by_rounding_is_no_gap() -> None:
    assert standing_text(Standing(1.5, 1.5 + 1e-12)).endswith("gap 0.0 %")


def test_quiet_commands_say_nothing(existing: object, remat: Remat) -> None:
    for command in (["check", existing, "-q"], ["small.py", "--budget", "75%", "-q"]):
        ended = remat(*command)
        assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_verify_says_what_it_runs(
    existing: object, remat: Remat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LINES", 0.0)
    said = remat("verify", existing).err.splitlines()
    assert said[0] == "remat-gen: verify"
    assert said[1] == "remat-gen: verify 1/6 planned steps"
    assert said[-1] == "remat-gen: verify 6/6 smaller batch"


def test_bars_of_early_stages_go() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with Terminal(console) as bars:
        for number in range(20):
            bars.stage(f"stage {number}: trace")
        shown = io.StringIO()
        Console(file=shown, width=80).print(bars._bars.get_renderable())
    lines = shown.getvalue().splitlines()
    assert [line.split(":")[0] for line in lines] == [f"stage {n}" for n in range(8, 20)]
