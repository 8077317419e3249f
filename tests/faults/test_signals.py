"""SIGINT and SIGTERM at every stage: a clear message, the old files whole, nothing else behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from signalled import signalled
from stages import STAGES

from remat_gen.cli.app import main
from remat_gen.ir.errors import Interruption
from remat_gen.terminal.interrupt import Interruptible, signals_wait
from remat_gen.terminal.progress import Progress

Happen = Callable[[str, Callable[[], object]], None]
Contents = Callable[[], dict[str, bytes]]
SIGNALS = [
    (signal.SIGINT, 130, "interrupted; nothing was written"),
    (signal.SIGTERM, 143, "terminated; nothing was written"),
]


@pytest.mark.parametrize(("number", "code", "says"), SIGNALS)
@pytest.mark.parametrize("stage", STAGES)
def test_at_the_beginning_of_a_stage(
    stage: str,
    number: int,
    code: int,
    says: str,
    at: Happen,
    contents: Contents,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = contents()
    at(stage, lambda: signal.raise_signal(number))
    assert main(["small.py", "--budget", "80%"]) == code
    assert says in capsys.readouterr().err
    assert contents() == before


@pytest.mark.parametrize(("number", "code", "says"), SIGNALS)
@pytest.mark.parametrize("rename", [1, 2])
def test_while_files_are_renamed_all_are_written(
    rename: int,
    number: int,
    code: int,
    says: str,
    contents: Contents,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, real, renames = contents(), os.replace, []

    def replace(source: Path, target: Path) -> None:
        renames.append(target)
        if len(renames) == rename:
            signal.raise_signal(number)
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    assert main(["small.py", "--budget", "80%"]) == code
    assert "small_remat.py and small_remat.plan.json were written" in capsys.readouterr().err
    after = contents()
    assert after.keys() == before.keys()
    assert all(after[name] != before[name] for name in ("small_remat.py", "small_remat.plan.json"))
    assert main(["check", "small_remat.py", "--quiet"]) == 0


def test_sigterm_is_not_pardoned_by_a_solve_that_has_a_schedule() -> None:
    with Interruptible(Progress()) as progress:
        with pytest.raises(Interruption):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Interruption):
            progress.pardon()
        with pytest.raises(Interruption):
            progress.stage("emit")


def test_sigterm_counts_although_sigint_came_too() -> None:
    with Interruptible(Progress()) as progress:
        for number in (signal.SIGTERM, signal.SIGINT):
            with pytest.raises(Interruption):
                signal.raise_signal(number)
        with pytest.raises(Interruption):
            progress.stage("emit")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_handled_as_before_afterwards(number: int) -> None:
    before = signal.getsignal(number)
    with Interruptible(Progress()), signals_wait("done"):
        assert signal.getsignal(number) is not before
    assert signal.getsignal(number) is before


def test_an_error_while_signals_wait_is_not_hidden() -> None:
    with pytest.raises(OSError, match="full"), signals_wait("done"):
        signal.raise_signal(signal.SIGINT)
        raise OSError("full")


_PROGRAM = """
import sys, time
from remat_gen.plan import pipeline
from remat_gen.cli.app import main

def slow(*arguments):
    print("STAGE", file=sys.stderr, flush=True)
    time.sleep(60)

pipeline._costs = slow
sys.exit(main())
"""


@pytest.mark.alone
def test_a_process_that_is_terminated(folder: Path, contents: Contents) -> None:
    before = contents()
    code, rest = signalled(_PROGRAM, folder, "STAGE", signal.SIGTERM)
    assert code == 143
    assert "remat-gen: terminated; nothing was written" in rest
    assert "Traceback" not in rest
    assert contents() == before
