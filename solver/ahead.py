"""A search that runs beside another one, in a second process.

What is found is the same as one after the other, since neither hears of the other; and a search
that nobody waits for is ended at once, whatever it is in.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

from remat_gen.solver.search import Progress
from remat_gen.solver.second_process import READY, Ended, Reported, started_by

Found = TypeVar("Found")
Search: TypeAlias = Callable[[Progress], Found]

_AWAKE_S = 0.5  # how long a wait is deaf to an interrupt where no signal ends it
_UNPICKLED = (pickle.PicklingError, AttributeError, TypeError)


class Ahead(AbstractContextManager["Ahead[Found]"], Generic[Found]):
    """Runs a search in a second process for as long as the block lasts.

    The search and what it returns are pickled. Where there is no second core, or no second process
    can be started, nothing is searched; nor is anything found where the search raises, or its
    process ends: whoever searches by itself then hears why.
    """

    def __init__(self, search: Search[Found], begins: bool = True) -> None:
        """Set up; where it does not begin, nothing is searched."""
        self._search, self._begins = search, begins
        self._talk: _Talk | None = None

    def __enter__(self) -> Self:
        """Start the search."""
        if self._begins and cores() > 1 and _is_python(sys.executable):
            # No process can be started, no thread, or the search cannot be handed over.
            with contextlib.suppress(OSError, RuntimeError, *_UNPICKLED):
                self._talk = _Talk(self._search)
        return self

    def wait(self, progress: Progress) -> Found | None:
        """Wait for what the search finds, and hear of its progress from now on."""
        if self._talk is None:
            return None
        for told in self._talk.told():
            if isinstance(told, Reported):
                progress(told.what, told.done, told.total)
            else:
                found: Found = told.found
                return found
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        """End the search, if it has not ended."""
        if self._talk is not None:
            self._talk.end()
            self._talk = None


class _Talk:
    """A process that searches; a thread hands it the search, and hears what it tells."""

    def __init__(self, search: Search[Any]) -> None:
        """Start a process, apart from the terminal's interrupts, and hand it the search.

        Raises:
            OSError: no process can be started.
            RuntimeError: no thread can.
        """
        # Here, not in the thread: what is searched keeps what it finds out about itself.
        search_text = pickle.dumps(search, pickle.HIGHEST_PROTOCOL)
        self._heard: Queue[Reported | Ended | None] = Queue()
        self._listener = threading.Thread(target=self._listen, args=(search_text,), daemon=True)
        self._process = subprocess.Popen(
            started_by(sys.executable),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self._listener.start()
        except BaseException:
            self.end()
            raise

    def told(self) -> Iterator[Reported | Ended]:
        """Yield what is told until the process has ended; of reports in a row only the last."""
        while True:
            try:
                told = self._heard.get(timeout=_AWAKE_S)
            except Empty:
                continue
            if told is None:
                return
            if isinstance(told, Ended) or self._heard.empty():
                yield told

    def _listen(self, search_text: bytes) -> None:
        """Hand the search over, and hear; in this order, no pipe is full with nobody reading it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with (
            contextlib.suppress(Exception),
            self._process.stdin as out,
            self._process.stdout as told,
        ):
            out.write(pickle.dumps(sys.path))
            out.flush()
            while (line := told.readline()) != READY:  # what else is printed when Python starts
                if not line:
                    raise EOFError
            out.write(search_text)
            out.flush()
            while True:
                self._heard.put(pickle.load(told))
        self._heard.put(None)

    def end(self) -> None:
        """End the process, and wait until it has ended."""
        self._process.kill()
        self._process.wait()
        if self._listener.is_alive():
            self._listener.join(_AWAKE_S)  # no longer: somebody else may hold the process's pipes


def _is_python(executable: str | None) -> bool:
    """Tell whether a program is Python's, not one that Python is embedded in."""
    return "python" in Path(executable or "").stem.lower()


_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # microseconds of CPU in so many, or "max": a container's


def cores() -> int:
    """Return how many cores this process may use."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = map(int, _QUOTA.read_text().split())
    except (OSError, ValueError):
        return found or 1
    return min(found or 1, quota // period)
