"""Tell on stderr how far the work is: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self, TextIO, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

# What is being done, how much of it is done, and how much there is.
Step: TypeAlias = Callable[[str, int, int], None]

_SECONDS_BETWEEN_LINES = 2.0


class Progress(AbstractContextManager["Progress"], Protocol):
    """Reports stages; each returns what reports the steps inside it."""

    def stage(self, name: str) -> Step:
        """Begin a stage: trace, profile, solve …"""
        ...


class Silent(AbstractContextManager["Silent"]):
    """Reports nothing."""

    def stage(self, name: str) -> Step:
        """Begin a stage."""
        return lambda _what, _done, _total: None

    def __exit__(self, *_: object) -> None:
        """End; nothing to do."""


class Lines(AbstractContextManager["Lines"]):
    """Writes a line per stage, and one every two seconds while it lasts."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def stage(self, name: str) -> Step:
        """Begin a stage."""
        self._write(name)
        last = time.monotonic()

        def step(what: str, done: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
                last = time.monotonic()
                self._write(f"{name} {done}/{total} {what}".rstrip())

        return step

    def _write(self, text: str) -> None:
        print(f"remat-gen: {text}", file=self._stream, flush=True)

    def __exit__(self, *_: object) -> None:
        """End; nothing to do."""


class Terminal(AbstractContextManager["Terminal"]):
    """Shows a bar per stage; drawn when something is reported, since a thread that draws would
    disturb what is being timed."""

    def __init__(self, console: Console) -> None:
        self._bars = Bars(
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[what]}", markup=True),
            console=console,
            transient=True,
            auto_refresh=False,
        )
        self._current: TaskID | None = None

    def stage(self, name: str) -> Step:
        """Begin a stage; the one before it is done."""
        self._finish()
        task = self._current = self._bars.add_task(name, total=None, what="")
        self._bars.refresh()

        def step(what: str, done: int, total: int) -> None:
            self._bars.update(task, completed=done, total=total, what=what[:40], refresh=True)

        return step

    def _finish(self) -> None:
        if self._current is not None:
            self._bars.update(self._current, total=1, completed=1, what="")

    def __enter__(self) -> Self:
        """Show the bars."""
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        """Take the bars away."""
        self._bars.stop()


def progress_for(console: Console, *, quiet: bool) -> Progress:
    """Return what suits the console: nothing, bars or lines."""
    if quiet:
        return Silent()
    return Terminal(console) if console.is_terminal else Lines(console.file)  # type: ignore[arg-type]
