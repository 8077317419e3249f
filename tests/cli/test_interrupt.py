"""An interrupted run leaves the old files whole and nothing else behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from remat_gen.interrupt import Interruptible
from remat_gen.progress import Silent

# The command line with a solver that does what the test says, in place of a long search.
_PROGRAM = """
import sys, time
import remat_gen.planning
from remat_gen.cli import main
from remat_gen.solver.solve import solve

def slow(problem, budget, strategy, progress):
    if strategy != "none":
        print("SOLVING", file=sys.stderr, flush=True)
        {body}
    return solve(problem, budget, strategy, progress)

remat_gen.planning.solve = slow
sys.exit(main())
"""
_SLEEP = "time.sleep(60)"
_SWALLOW = """
        class Finalised:
            def __del__(self):
                time.sleep(2)
        Finalised()
"""


@pytest.mark.parametrize("body", [_SLEEP, _SWALLOW], ids=["sleeping", "in a finaliser"])
def test_sigint_during_the_solve(body: str, existing: Path) -> None:
    folder = existing.parent
    before = {path: path.read_bytes() for path in folder.iterdir()}
    program = [sys.executable, "-c", _PROGRAM.format(body=body.strip())]
    process = subprocess.Popen(
        [*program, "small.py", "--budget", "80%"], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    while "SOLVING" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(timeout=30) == 130
    assert "remat-gen: interrupted; nothing was written" in rest
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_swallowed_interrupt_comes_back() -> None:
    with Interruptible(Silent()) as progress:
        step = progress.stage("solve")
        step("block", 1, 2)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            step("block", 2, 2)
        with pytest.raises(KeyboardInterrupt):
            progress.stage("write")


def test_the_signal_is_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interruptible(Silent()):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_are_left_alone() -> None:
    stages = []

    def work() -> None:
        with Interruptible(Silent()) as progress:
            stages.append(progress.stage("solve"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert stages
