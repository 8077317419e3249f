"""A search that runs beside another one, in a second thread.

Integer programs are solved without Python's lock, z3's and HiGHS's alike: while one search waits
for its own, another can go on. What is found is the same as one after the other, since neither
hears of the other.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from remat_gen.solver.search import Progress


class NotWantedError(Exception):
    """Ends a search that ran ahead for nothing."""


@dataclass(slots=True)
class Leash:
    """A progress that can be told to say nothing, and to end the search at its next report."""

    progress: Progress
    silent: bool = False
    wanted: bool = True

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report, unless it is silent.

        Raises:
            NotWantedError: the search is not wanted any more.
        """
        if not self.wanted:
            raise NotWantedError
        if not self.silent:
            self.progress(what, done, total)


class Ahead(AbstractContextManager["Ahead"]):
    """Runs a search in a second thread for as long as the block lasts.

    A search that is not waited for ends at its next report to `leash`; what it has stored by then
    stays. Where there is no second core, or no second thread, nothing is searched.
    """

    def __init__(self, search: Callable[[], object], leash: Leash) -> None:
        self._search, self._leash = search, leash
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="remat-gen")
        self._future: Future[object] | None = None

    def __enter__(self) -> Self:
        """Start the search."""
        if cores() < 2:
            return self
        _COLLECTOR.rest()
        self._leash.silent = True
        try:
            self._future = self._pool.submit(self._search)
        except RuntimeError:  # no thread can be started
            self._end()
        return self

    def wait(self) -> None:
        """Wait for the search, which may report from now on; raise what it raises."""
        self._leash.silent = False
        if self._future:
            self._future.result()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        """End the search, if it has not ended; an interrupt meanwhile is raised when it has."""
        if self._future is None:
            return
        self._leash.wanted = False
        came: BaseException | None = None
        while not self._future.done():
            try:
                wait_for([self._future])
            except BaseException as interrupt:  # a SIGTERM's, too: raised when the thread has ended
                came = interrupt
        self._end()
        if came is not None:
            raise came

    def _end(self) -> None:
        self._leash.wanted, self._leash.silent = True, False
        _COLLECTOR.wake()
        self._pool.shutdown()


class _Collector:
    """Lets the garbage collector rest while any search runs ahead.

    z3's objects must not be freed by one thread while another is inside of their context.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._searches = 0
        self._enabled = False

    def rest(self) -> None:
        """Let it rest for one search more."""
        with self._lock:
            if not self._searches:
                self._enabled = gc.isenabled()
                gc.disable()
            self._searches += 1

    def wake(self) -> None:
        """Let it rest for one search less."""
        with self._lock:
            self._searches -= 1
            if not self._searches and self._enabled:
                gc.enable()


_COLLECTOR = _Collector()
_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # microseconds of CPU in so many, or "max": a container's


def cores() -> int:
    """Return how many cores this process may use."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = map(int, _QUOTA.read_text().split())
    except (OSError, ValueError):
        return found or 1
    return min(found or 1, quota // period)
