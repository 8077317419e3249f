"""`--help` of every command fits a screen of 80 × 36 and shows an example."""

from __future__ import annotations

import pytest
from cli_runs import Remat

from remat_gen.cli.app import COMMANDS

LINES, COLUMNS = 36, 80


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_a_screen(command: str, remat: Remat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    ended = remat(*command.split(), "--help")
    lines = ended.out.rstrip("\n").splitlines()
    assert ended.code == 0
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    examples = [line.strip() for line in lines if line.startswith("  remat-gen ")]
    named = "remat-gen model.py" if command in ("", "generate") else f"remat-gen {command} "
    assert any(example.startswith(named) for example in examples)


def test_the_first_help_names_every_command(remat: Remat) -> None:
    text = remat("--help").out
    assert all(command in text for command in COMMANDS)


@pytest.mark.parametrize("command", ["", "verify"])
def test_a_short_option_asks_for_the_same(command: str, remat: Remat) -> None:
    assert remat(*command.split(), "-h").out == remat(*command.split(), "--help").out


def test_a_misspelt_command_is_no_model(remat: Remat) -> None:
    ended = remat("verfy", "model_remat.py")
    assert ended.code == 2
    assert ended.err == (
        "remat-gen: error: verfy: no such command, and no file; did you mean 'verify'?\n"
    )


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("solve", "graph.json"), "remat-gen solve"),
        (("verify",), "remat-gen verify"),
        (("model.py", "--bugdet", "1GB"), "remat-gen generate"),
    ],
)
def test_a_wrong_call_names_its_own_help(
    words: tuple[str, ...], command: str, remat: Remat
) -> None:
    ended = remat(*words)
    assert ended.code == 2
    assert ended.err.endswith(f" See {command} --help.\n")


@pytest.mark.parametrize("option", ["--units", "--keep", "--output", "--target"])
def test_an_empty_text_asks_for_nothing(option: str, remat: Remat) -> None:
    """A shell's variable that is not set: `-o "$OUT"` went to the default."""
    ended = remat("model.py", "--budget", "60%", option, "")
    assert (ended.code, ended.err) == (
        2,
        f"remat-gen: error: {option}: an empty text was given\n",
    )
