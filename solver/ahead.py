"""A search that runs beside another one, in a second thread.

Integer programs are solved without Python's lock, z3's and HiGHS's alike: while one search waits
for its own, another can go on. What is found is the same as one after the other, since neither
hears of the other.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
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
    stays. Garbage is not searched for meanwhile: z3's objects must not be freed by one thread while
    the other one is inside of their context.
    """

    def __init__(self, search: Callable[[], object], leash: Leash) -> None:
        self._search, self._leash = search, leash
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="remat-gen")
        self._future: Future[object] | None = None
        self._collecting = False

    def __enter__(self) -> Self:
        """Start the search, where there is a second core for it."""
        self._collecting = gc.isenabled()
        if cores() > 1:
            gc.disable()
            self._leash.silent = True
            self._future = self._pool.submit(self._search)
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
        """End the search, if it has not ended."""
        self._leash.wanted = False
        self._pool.shutdown()
        self._leash.wanted, self._leash.silent = True, False
        if self._collecting:
            gc.enable()


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
