"""Standard output in an encoding that lacks what is written there."""

from __future__ import annotations

import io
import sys

import pytest

from remat_gen.cli.app import run
from remat_gen.terminal.printing import write_stdout


def test_a_module_is_utf_8_in_any_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a pipe on Windows it was cp1252, and no Python could import it."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    print("before", end="")
    write_stdout("× 1.02")
    assert written.getvalue() == b"before\xc3\x97 1.02"


def test_a_report_says_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify` of a right file ended as a defect where a log is ASCII."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setattr(sys, "argv", ["remat-gen", "--version"])
    with pytest.raises(SystemExit):
        run()
    print("× 1.02", flush=True)
    assert written.getvalue().endswith(b"? 1.02\n")
