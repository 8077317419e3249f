"""Copies to the host and back: what a schedule must hold to, and the time of two copy engines.

Each direction has an engine and a queue: copies go one after another, in the order in which they
were queued, beside what is computed. A copy begins once it is queued, what was computed before it
is done and its engine is free; one back to the device also once the copy out has ended.

Memory goes by the schedule alone, whatever the engines do: a value that was sent holds its memory
until it is freed, and that waits for its copy; one that is fetched holds it from where its copy is
queued, and what reads it first, or frees it, waits. So a slow engine costs time, never memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remat_gen.solver.law.problem import HostLink


@dataclass(slots=True)
class Copies:
    """The engines while a schedule is replayed; times are moments of the step, in microseconds.

    `going` has the end of the last copy of each value that nothing has waited for yet, `sent` the
    values whose memory still is that of a copy out. `host` are those that lie on the host.
    """

    link: HostLink | None
    going: dict[int, float] = field(default_factory=dict)
    sent: set[int] = field(default_factory=set)
    host: dict[int, float] = field(default_factory=dict)  # by value: when it is there
    host_bytes: int = 0
    host_peak: int = 0
    travelled: list[int] = field(default_factory=list)
    _out_free: float = 0.0
    _in_free: float = 0.0

    def send(self, v: int, nbytes: int, now: float) -> None:
        """Queue a copy out."""
        assert self.link is not None
        self._out_free = max(now, self._out_free) + self.link.copy_us(nbytes)
        self.going[v] = self.host[v] = self._out_free
        self.sent.add(v)
        self.travelled.append(v)
        self.host_bytes += nbytes
        self.host_peak = max(self.host_peak, self.host_bytes)

    def fetch(self, v: int, nbytes: int, now: float) -> None:
        """Queue the copy back; the host's memory may go once it is queued."""
        assert self.link is not None
        begin = max(now, self._in_free, self.host.pop(v))
        self._in_free = self.going[v] = begin + self.link.copy_us(nbytes)
        self.host_bytes -= nbytes

    def wait(self, v: int, now: float) -> float:
        """Return the moment at which what needs a value's copy to have ended goes on."""
        return max(now, self.going.pop(v, now))

    def read(self, v: int, now: float) -> float:
        """Return when a value can be read: one that is being sent can at once."""
        return now if v in self.sent else self.wait(v, now)

    def free(self, v: int, now: float) -> float:
        """Return when a value's memory can be let go."""
        self.sent.discard(v)
        return self.wait(v, now)
