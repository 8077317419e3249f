"""Make one Ctrl-C enough, and two final.

A `KeyboardInterrupt` that is raised inside a finaliser is printed and forgotten, and z3's objects
have finalisers without end: an interrupted run went on and wrote its files. So the signal is
remembered, and every report of progress raises it again.

A solve that was interrupted and has a schedule is pardoned, and the run goes on with it; a second
Ctrl-C ends the run.
"""

from __future__ import annotations

import signal
import threading
from contextlib import AbstractContextManager
from types import FrameType, TracebackType
from typing import Self

from remat_gen.progress import Progress, Step


class Interruptible(AbstractContextManager["Interruptible"]):
    """A progress that raises `KeyboardInterrupt` at the next report after a Ctrl-C."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._pending = False
        self._count = 0
        self._before: signal.Handlers | None = None

    def stage(self, name: str) -> Step:
        """Begin a stage, unless an interrupt was asked for."""
        self._check()
        inner = self._progress.stage(name)

        def step(what: str, done: int, total: int) -> None:
            self._check()
            inner(what, done, total)

        return step

    def pardon(self) -> None:
        """Go on after a Ctrl-C, since what it interrupted has kept a result.

        Raises:
            KeyboardInterrupt: there was more than one.
        """
        if self._count > 1:
            raise KeyboardInterrupt
        self._pending = False

    def _check(self) -> None:
        if self._pending:
            raise KeyboardInterrupt

    def _remember(self, _number: int, _frame: FrameType | None) -> None:
        self._pending = True
        self._count += 1
        raise KeyboardInterrupt

    def __enter__(self) -> Self:
        """Listen for the signal; only the main thread may."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._remember)  # type: ignore[assignment]
        self._progress.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        """Leave the signal as it was."""
        self._progress.__exit__(kind, error, frames)
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None
