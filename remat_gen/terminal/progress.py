"""Tell on stderr how far the work is: bars on a terminal, plain lines elsewhere.

Colours are rich's affair: NO_COLOR and terminals without any are honoured by its console.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import IO, Self, TypeAlias

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from remat_gen.solver.law.search_types import Standing

# What is being done, how much of it is done, and how much there is.
Step: TypeAlias = Callable[[str, int, int], None]

_SECONDS_BETWEEN_LINES = 2.0
_MOST_BARS = 12  # of the latest stages


class Progress(AbstractContextManager["Progress"]):
    """Hears of stages; each returns what hears of the steps inside it. This one tells nobody."""

    def stage(self, name: str) -> Step:
        """Begin a stage: trace, profile, solve …"""
        return lambda _what, _done, _total: None

    def news(self, standing: Standing) -> None:
        """Tell how good the best schedule is so far, and how good one can be."""

    def pardon(self) -> None:
        """Go on after an interrupt, since what was interrupted has kept a result."""

    def __exit__(self, *_: object) -> None:
        """End."""


@dataclass(slots=True)
class Stages:
    """Begins stages; `seconds` has the time of each, by its name."""

    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[Step]:
        """Report and time a stage; one of the same name adds to the first."""
        start = time.perf_counter()
        yield self.progress.stage(name)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def standing_text(standing: Standing) -> str:
    """Return what is known about the search: `best × 1.103, bound × 1.066, gap 3.5 %`."""
    bound = f"bound × {standing.bound:.3f}"
    if standing.best is None or standing.gap is None:
        return f"none fits yet, {bound}"
    return f"best × {standing.best:.3f}, {bound}, gap {100 * standing.gap:.1f} %"


class Lines(Progress):
    """Writes a line per stage, and one every two seconds while it lasts."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._stage = ""
        self._standing = ""
        self._last = 0.0

    def stage(self, name: str) -> Step:
        """Begin a stage."""
        self._stage, self._standing = name, ""
        self._write(name)

        def step(what: str, done: int, total: int) -> None:
            self._sometimes(f"{name} {done}/{total} {what}".rstrip())

        return step

    def news(self, standing: Standing) -> None:
        """Remember how far a search is, for the next line."""
        self._standing = standing_text(standing)
        self._sometimes(self._stage)

    def _sometimes(self, text: str) -> None:
        if time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._write(f"{text}: {self._standing}" if self._standing else text)

    def _write(self, text: str) -> None:
        self._last = time.monotonic()
        print(f"remat-gen: {text}", file=self._stream, flush=True)


class _Bars(Bars):
    """Bars, and a line below them that says how far the search is."""

    standing = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.standing:
            yield Text(f"{'':11}{self.standing}", style="dim", no_wrap=True, overflow="ellipsis")


class Terminal(Progress):
    """Shows a bar per stage; drawn when something is reported, since a thread that draws would
    disturb what is being timed."""

    def __init__(self, console: Console) -> None:
        what = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        self._bars = _Bars(
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[what]}", style="dim", markup=False, table_column=what),
            console=console,
            transient=True,
            auto_refresh=False,
            expand=True,
        )
        self._current: TaskID | None = None

    def stage(self, name: str) -> Step:
        """Begin a stage; the one before it is done."""
        self._finish()
        task = self._current = self._bars.add_task(name, total=None, what="")
        self._bars.refresh()

        def step(what: str, done: int, total: int) -> None:
            self._bars.update(task, completed=done, total=total, what=what, refresh=True)

        return step

    def news(self, standing: Standing) -> None:
        """Show how far a search is below its bar."""
        self._bars.standing = standing_text(standing)
        self._bars.refresh()

    def _finish(self) -> None:
        self._bars.standing = ""
        if self._current is not None:
            total = self._bars.tasks[self._current].total or 1
            self._bars.update(self._current, total=total, completed=total, what="")
        for old in self._bars.task_ids[: 1 - _MOST_BARS]:
            self._bars.update(old, visible=False)

    def __enter__(self) -> Self:
        """Show the bars."""
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bars away."""
        self._bars.stop()


def progress_for(console: Console, *, quiet: bool) -> Progress:
    """Return what suits the console: nothing, bars or lines."""
    if quiet:
        return Progress()
    return Terminal(console) if console.is_terminal else Lines(console.file)
