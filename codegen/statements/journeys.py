"""Values on their way to the host and back: the statements, and what must wait for a copy."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from remat_gen.codegen.expressions.marks import Mark, kept
from remat_gen.codegen.statements.free_names import HOST
from remat_gen.codegen.statements.lifetimes import moments
from remat_gen.codegen.statements.moments import Now
from remat_gen.codegen.statements.statements import Statement
from remat_gen.solver.law.schedule import Fetch


@dataclass(slots=True)
class Journeys:
    """Follows the values of a schedule: `sending` ones are resident for their copy's sake as well,
    `coming` ones cannot be read before their copy has ended."""

    now: Now
    sending: set[int] = field(default_factory=set)
    coming: set[int] = field(default_factory=set)
    _last: dict[int, int] = field(default_factory=dict)  # the moment of each value's last fetch

    def __post_init__(self) -> None:
        for moment, _, step in moments(self.now.schedule):
            if isinstance(step, Fetch):
                self._last[step.value] = moment

    def send(self, v: int) -> Statement:
        """Return the line that queues a copy to the host."""
        self.sending.add(v)
        return Statement(f"{self._host(v)} = to_host({self._place(v)})", sent=self._nbytes(v))

    def fetch(self, v: int) -> Statement:
        """Return the line that queues a copy back."""
        self.coming.add(v)
        text = f"{self._place(v)} = from_host({self._host(v)})"
        return Statement(text, fetched=self._nbytes(v))

    def before_reading(self, values: Set[int]) -> list[Statement]:
        """Return the lines that wait for what is read and still comes."""
        return [self._wait(v, self.coming) for v in sorted(self.coming & values)]

    def before_freeing(self, v: int) -> list[Statement]:
        """Return the line that waits for the copy of a value whose memory goes, if any does."""
        copied = next((s for s in (self.sending, self.coming) if v in s), None)
        return [] if copied is None else [self._wait(v, copied)]

    def left_on_host(self, v: int) -> list[Statement]:
        """Return the line that lets the copy of a value go which is freed for the last time."""
        if self._last.get(v, self.now.moment) >= self.now.moment:
            return []
        del self._last[v]
        return [Statement(f"del {self._host(v)}")]

    def _wait(self, v: int, copied: set[int]) -> Statement:
        copied.discard(v)
        return Statement(f"wait_for({self._host(v)})")

    def _host(self, v: int) -> str:
        return f"{kept(self.now.lifetime(v).owner, self._name(v))}{HOST}"

    def _place(self, v: int) -> Mark:
        return self.now.place(self._name(v))

    def _name(self, v: int) -> str:
        return self.now.problem.values[v].name

    def _nbytes(self, v: int) -> int:
        return self.now.problem.values[v].nbytes
