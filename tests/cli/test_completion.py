"""The shell completes commands, options and choices, also where the command is not said."""

from __future__ import annotations

import pytest
from cli_runs import Ended, Remat

from remat_gen.ask.request import Strategy


@pytest.fixture
def bash(monkeypatch: pytest.MonkeyPatch, remat: Remat) -> Remat:
    """Ask as bash does: the words, the last one being typed."""

    def ask(*words: object) -> Ended:
        monkeypatch.setenv("_REMAT_GEN_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(["remat-gen", *map(str, words)]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        return remat()

    return ask


@pytest.fixture
def zsh(monkeypatch: pytest.MonkeyPatch, remat: Remat) -> Remat:
    """Ask as zsh does: the line up to the cursor."""

    def ask(line: object) -> Ended:
        monkeypatch.setenv("_REMAT_GEN_COMPLETE", "complete_zsh")
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", str(line))
        return remat()

    return ask


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["sw"], ["sweep"]),
        (["--bud"], ["--budget"]),
        (["model.py", "--bud"], ["--budget"]),
        (["generate", "model.py", "--rec"], ["--recompute"]),
        (["model.py", "--budget", "6GB", "--strategy", ""], [name.value for name in Strategy]),
        (
            ["model.py", "--strategy", "ch"],
            ["checkmate", "checkmate-lp", "chen-sqrt", "chen-greedy"],
        ),
        (["solve", "graph.json", "--effort", "t"], ["thorough"]),
        (["diff", "a.py", "b.py", "--format", "m"], ["markdown"]),
    ],
)
def test_bash(bash: Remat, words: list[str], offered: list[str]) -> None:
    assert bash(*words).out.split() == offered


def test_every_command_is_offered(bash: Remat) -> None:
    offered = bash("").out.split()
    assert {"generate", "check", "diff", "verify", "sweep", "plot", "explain"} <= set(offered)


@pytest.mark.parametrize("line", ["remat-gen model.py --bud", "remat-gen generate --bud"])
def test_zsh(zsh: Remat, line: str) -> None:
    assert '"--budget"' in zsh(line).out


def test_an_open_quote_is_no_error(bash: Remat) -> None:
    ended = bash("my 'model.py", "--bud")
    assert "Traceback" not in ended.err and "defect" not in ended.err


def test_the_script_is_shown(monkeypatch: pytest.MonkeyPatch, remat: Remat) -> None:
    """It is that of the shell which started us: a scheduler, for one, is none."""
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    ended = remat("--show-completion", "bash")
    assert "_REMAT_GEN_COMPLETE=complete_bash" in ended.out
