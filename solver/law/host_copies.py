"""Copies to the host and back: what a schedule must hold to, and the time of two copy engines.

Each direction has an engine, and a queue in which copies go one after another. One begins once it
is queued, what was computed before it is done and its engine is free; one back also once the copy
out has ended. Memory goes by the schedule alone: a value that was sent holds its memory until it is
freed, and that waits for its copy; one that is fetched holds it from where its copy is queued, and
what reads it first, or frees it, waits. So a slow engine costs time, never memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remat_gen.solver.law.problem import HostLink


@dataclass(slots=True)
class Copies:
    """The engines while a schedule is replayed; times are moments of the step, in microseconds.

    `host` are the values that were sent, with the moment at which each is there: it stays, to be
    fetched any number of times. `going` has the end of the last copy of each value that nothing has
    waited for yet, `sending` the values whose memory still is that of a copy out.
    """

    link: HostLink | None
    host: dict[int, float] = field(default_factory=dict)
    fetched: set[int] = field(default_factory=set)
    sending: set[int] = field(default_factory=set)
    going: dict[int, float] = field(default_factory=dict)
    _out_free: float = 0.0
    _in_free: float = 0.0

    def send(self, v: int, nbytes: int, now: float) -> None:
        """Queue a copy out."""
        assert self.link is not None
        self._out_free = max(now, self._out_free) + self.link.copy_us(nbytes)
        self.going[v] = self.host[v] = self._out_free
        self.sending.add(v)

    def fetch(self, v: int, nbytes: int, now: float) -> None:
        """Queue the copy back."""
        assert self.link is not None
        begin = max(now, self._in_free, self.host[v])
        self._in_free = self.going[v] = begin + self.link.copy_us(nbytes)
        self.fetched.add(v)

    def read(self, v: int, now: float) -> float:
        """Return when a value can be read: one that is being sent can at once."""
        return now if v in self.sending else self._wait(v, now)

    def free(self, v: int, now: float) -> float:
        """Return when a value's memory can be let go."""
        self.sending.discard(v)
        return self._wait(v, now)

    def _wait(self, v: int, now: float) -> float:
        return max(now, self.going.pop(v, now))
