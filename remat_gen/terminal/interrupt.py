"""Make one Ctrl-C enough, and two final.

A `KeyboardInterrupt` that is raised inside a finaliser is printed and forgotten, and z3's objects
have finalisers without end: an interrupted run went on and wrote its files. So the signal is
remembered, and every report of progress raises it again. Nor is it raised while a module is
imported: C code swallows it there, and half a library is left, or ends the process.

A solve that was interrupted and has a schedule is pardoned, and the run goes on with it; a second
Ctrl-C ends the run, and so does SIGTERM, at once. While files are written signals wait: all of them
are written, or none.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Self

from rich.console import Console

from remat_gen.ir.errors import Interruption
from remat_gen.solver.law.search_types import Standing
from remat_gen.terminal.progress import Progress, Step, progress_for


class Interruptible(Progress):
    """A progress that raises `KeyboardInterrupt` at the next report after a Ctrl-C.

    After a SIGTERM it is `Interruption`, which nobody takes for a wish to see results.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._came: list[int] = []
        self._pending = False
        self._before: dict[int, Any] = {}
        self._part = ""

    def part(self, name: str) -> None:
        """Name the part of the work that the next stages belong to."""
        self._part = f"{name}: "

    def stage(self, name: str) -> Step:
        """Begin a stage, unless an interrupt was asked for."""
        self._check()
        inner = self._progress.stage(self._part + name)

        def step(what: str, done: int, total: int) -> None:
            self._check()
            inner(what, done, total)

        return step

    def news(self, standing: Standing) -> None:
        """Hand on how far a search has come, unless an interrupt was asked for."""
        self._check()
        self._progress.news(standing)

    def pardon(self) -> None:
        """Go on after a Ctrl-C, since what it interrupted has kept a result.

        Raises:
            KeyboardInterrupt: there was more than one.
            Interruption: there was a SIGTERM.
        """
        self._pending = len(self._came) > 1 or signal.SIGTERM in self._came
        self._check()

    def _check(self) -> None:
        if self._pending and signal.SIGTERM in self._came:
            raise Interruption(signal.SIGTERM)
        if self._pending:
            raise KeyboardInterrupt

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._came.append(number)
        self._pending = True
        if len(self._came) > 1 or not _in_import(frame):
            self._check()

    def __enter__(self) -> Self:
        """Listen for the signals; only the main thread may."""
        self._before = _listen(self._remember)
        self._progress.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        """Leave the signals as they were; what failed after an interrupt failed by it.

        Raises:
            KeyboardInterrupt: there was one before the error.
            Interruption: there was a SIGTERM.
        """
        self._progress.__exit__(*raised)
        _restore(self._before)
        if isinstance(raised[1], Exception):
            self._check()


def reported(*, quiet: bool) -> Interruptible:
    """Return the progress of a command, on stderr."""
    return Interruptible(progress_for(Console(stderr=True), quiet=quiet))


def _in_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _listen(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Handle both signals, and return who did before; only the main thread may."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}


def _restore(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


@contextlib.contextmanager
def signals_wait(done: str) -> Iterator[None]:
    """Let signals wait until the block is done; `done` says what is then there.

    Raises:
        Interruption: there was a signal; it says what was done.
    """
    came: list[int] = []
    before = _listen(lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        _restore(before)
    if came:
        raise Interruption(max(came), done)  # SIGTERM, if it was among them
