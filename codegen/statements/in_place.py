"""Which operations of a schedule write their result over an input that dies with them.

An operation may take over the memory of an input that is freed before anything else runs: what is
saved is the time to fetch and to fill fresh pages, and where the problem says so (`over`), memory.

The prediction stays exact: what the problem does not count on keeps to new memory where it is the
operation that sets the peak, or one alike. Operations alike are treated alike, so that identical
layers stay one class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from remat_gen.codegen.expressions.in_place_forms import method_of, part_of
from remat_gen.codegen.statements.buffer_updates import updates_in_place
from remat_gen.codegen.statements.written_over import Fits
from remat_gen.ir.graph import Graph
from remat_gen.ir.size import may_fall
from remat_gen.solver.law.problem import Held, Problem
from remat_gen.solver.law.replay import Replay, replay
from remat_gen.solver.law.schedule import Schedule


@dataclass(slots=True)
class InPlace:
    """Decides for the operations of a schedule.

    What it must not exceed is what was `judged`: the schedule's own figures, with `.grad` there and
    without, or those of what is made of it.
    """

    graph: Graph
    problem: Problem
    schedule: Schedule
    judged: Sequence[tuple[Problem, Replay]] = ()
    _peaks: frozenset[str] = field(init=False)
    _short: frozenset[str] = field(init=False)
    _fits: Fits = field(init=False)
    _updates: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        judged = self.judged or [
            (self.problem, replay(self.problem, self.schedule, keep_gradients=keep))
            for keep in (False, True)
        ]
        self._peaks = frozenset(_operation(problem, r.peak_at) for problem, r in judged)
        self._short = frozenset(s for problem, r in judged for s in _short_in(problem, r))
        if any(may_fall(size) for layout in self.graph.layouts.values() for size in layout.shape):
            # a value may take more in a shorter step: another operation may have its peak then
            self._short = frozenset(o.signature for o in self.problem.operations)
        leaving = frozenset(v.name for v in self.problem.values if v.held is not Held.FREE)
        self._fits = Fits(self.graph, leaving)
        self._updates = updates_in_place(self.graph, leaving)

    def argument(self, p: int, dying: Set[int]) -> int | None:
        """Return which argument of operation p its result is written over, if one is.

        `dying` are the values that are freed before any other operation runs.
        """
        operation, planned = self.graph.operations[p], self.problem.operations[p]
        if method_of(operation) or part_of(operation):
            if planned.over is None and planned.signature in self._peaks:
                return None
        elif planned.over is None or planned.signature not in self._short:
            return None
        return self._fits.position(operation, {self.problem.values[v].name for v in dying})

    def updates(self, p: int) -> bool:
        """Tell whether operation p updates a buffer, instead of making its new value."""
        named = self.graph.operations[p].name in self._updates
        return named and self.problem.operations[p].signature not in self._peaks


def _operation(problem: Problem, p: int) -> str:
    return problem.operations[p].signature


def _short_in(problem: Problem, judged: Replay) -> Iterator[str]:
    """Yield the signatures of operations that would exceed the peak in new memory."""
    highest = max(moment.nbytes for moment in judged.timeline)
    for moment in judged.timeline:
        over = problem.operations[moment.operation].over
        if over is not None and moment.nbytes + problem.values[over].nbytes > highest:
            yield _operation(problem, moment.operation)
