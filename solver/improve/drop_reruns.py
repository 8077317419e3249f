"""Leave re-runs out of a timeline, and with them those that only served them."""

from __future__ import annotations

from remat_gen.solver.improve.problem_arrays import MADE, READ
from remat_gen.solver.improve.run_timeline import Timeline


def pruned(timeline: Timeline) -> Timeline:
    """Return the timeline without re-runs whose outputs nobody reads, in one go."""
    unread = timeline.unread()
    return _Cascade(timeline).without(unread) if unread else timeline


def without(timeline: Timeline, position: int) -> Timeline:
    """Return a pruned timeline without one re-run and without those that only served it."""
    return _Cascade(timeline).without([position])


def without_all(timeline: Timeline, positions: list[int]) -> Timeline:
    """Return a pruned timeline without some re-runs and those that only served them."""
    return _Cascade(timeline).without(positions)


class _Cascade:
    """Reads per stay while runs go: those of a stay that goes fall to the one before it."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.operations = timeline.arrays.problem.operations
        self.changed: dict[int, int] = {}
        self.gone: set[int] = set()

    def without(self, positions: list[int]) -> Timeline:
        """Leave out the runs at `positions` and all that nobody reads then."""
        stack = list(positions)
        while stack:
            position = stack.pop()
            if position not in self.gone:
                self.gone.add(position)
                stack.extend(self._remove(position))
        return self.timeline.kept(self.gone)

    def _remove(self, position: int) -> list[int]:
        """Take a run out; return the runs that nobody reads any more."""
        operation = self.operations[self.timeline.run_list[position]]
        for v in operation.outputs:
            stay = self.timeline.stay(v, position, MADE)
            heir = self._alive(stay)
            self.changed[heir] = self._reads(heir) + self._reads(stay)
            self.changed[stay] = 0
        unread = []
        for v in operation.inputs:
            stay = self._alive(self.timeline.stay(v, position, READ))
            self.changed[stay] = self._reads(stay) - 1
            if not self.changed[stay] and self._is_useless(stay):
                unread.append(int(self.timeline.made_at[stay]))
        return unread

    def _is_useless(self, stay: int) -> bool:
        timeline = self.timeline
        position = int(timeline.made_at[stay])
        if not timeline.from_run[stay] or timeline.firsts[position]:
            return False
        made = self.operations[timeline.run_list[position]].outputs
        return all(not self._reads(self.timeline.stay(v, position, MADE)) for v in made)

    def _alive(self, stay: int) -> int:
        """Return the stay, or the one before it that is not gone: first runs never go."""
        made_at, from_run = self.timeline.made_at, self.timeline.from_run
        while from_run[stay] and int(made_at[stay]) in self.gone:
            stay -= 1
        return stay

    def _reads(self, stay: int) -> int:
        return self.changed.get(stay, int(self.timeline.reads[stay]))
