"""A progress that lets something happen as a stage begins."""

from __future__ import annotations

from collections.abc import Callable

from remat_gen.terminal.progress import Progress, Step

STAGES = ("load", "trace", "profile", "solve", "emit", "write")


class At(Progress):
    """Calls `what` when the named stage begins."""

    def __init__(self, stage: str, what: Callable[[], object]) -> None:
        self._stage, self._what = stage, what

    def stage(self, name: str) -> Step:
        """Begin a stage."""
        if name == self._stage:
            self._what()
        return super().stage(name)
