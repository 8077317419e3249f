"""The stages of a run, reported and timed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from remat_gen.terminal.interrupt import Interruptible
from remat_gen.terminal.progress import Progress, Step


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

    def pardon(self) -> None:
        """Go on after an interrupt, since what was interrupted has kept a result."""
        if isinstance(self.progress, Interruptible):
            self.progress.pardon()
