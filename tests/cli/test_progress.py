"""Progress: lines without a terminal, bars on one, nothing when quiet."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from remat_gen import progress as module
from remat_gen.progress import progress_for


def _report(console: Console, quiet: bool = False) -> None:
    with progress_for(console, quiet=quiet) as progress:
        step = progress.stage("profile")
        step("aten.mm", 1, 2)
        step("aten.add", 2, 2)
        progress.stage("solve")


def test_lines_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LINES", 0.0)
    stream = io.StringIO()
    _report(Console(file=stream))
    assert stream.getvalue().splitlines() == [
        "remat-gen: profile",
        "remat-gen: profile 1/2 aten.mm",
        "remat-gen: profile 2/2 aten.add",
        "remat-gen: solve",
    ]


def test_lines_are_not_too_many() -> None:
    stream = io.StringIO()
    _report(Console(file=stream))
    assert stream.getvalue().splitlines() == ["remat-gen: profile", "remat-gen: solve"]


@pytest.mark.parametrize("no_color", [False, True])
def test_bars_on_a_terminal(no_color: bool) -> None:
    stream = io.StringIO()
    _report(Console(file=stream, force_terminal=True, no_color=no_color, width=100))
    text = stream.getvalue()
    assert "profile" in text and "2/2" in text and "solve" in text
    assert ("\x1b[32m" in text) is not no_color


def test_silence() -> None:
    stream = io.StringIO()
    _report(Console(file=stream), quiet=True)
    assert stream.getvalue() == ""
