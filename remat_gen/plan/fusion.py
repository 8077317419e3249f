"""Which parts of a schedule are compiled: those that are quicker so, and that fit the budget.

The longest runs of fusible operations are cut into pieces, and of the stretches of pieces the
cheapest are compiled; one that would raise the peak above the budget is not. All of it follows from
the schedule and from the costs of functions, so that a plan that has both gives the same module
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from remat_gen.compile.fusible import fusible_in, has_own_kernel
from remat_gen.compile.fusing import write_fused
from remat_gen.compile.part_text import PartText
from remat_gen.ir.costs import PartCost
from remat_gen.ir.errors import GraphError
from remat_gen.ir.graph import Graph
from remat_gen.ir.plan import Compiled
from remat_gen.solver.compiled.fused import PartFigures, fuse, replay_fused
from remat_gen.solver.compiled.parts import (
    Part,
    cheapest,
    ends_of,
    longest_parts,
    pieces_of,
    stretches,
)
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import Replay, replay
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.law.sums import added

# Returns what functions cost, by their hash.
Measure: TypeAlias = Callable[[Sequence[PartText]], Mapping[str, PartCost]]

_GAIN = 0.97  # of the time one by one: less is what two measurements of the same differ by


@dataclass(frozen=True, slots=True)
class Fusion:
    """The parts of a schedule that are compiled, and the step that they make.

    `without_grads` starts with `.grad` set to None. `compiled` is what the plan says of it, with
    the costs of all functions that were tried.
    """

    parts: Mapping[Part, PartFigures]
    replay: Replay
    without_grads: Replay
    compiled: Compiled


def choose_parts(
    graph: Graph,
    problems: Sequence[Problem],
    schedule: Schedule,
    budget_bytes: int,
    measure: Measure,
) -> Fusion:
    """Choose what is compiled of a schedule that fits a budget.

    `problems` are the example's, then those at smaller lengths that the schedule fits in as well.
    """
    problem = problems[0]
    chooser = _Chooser(graph, problems, schedule, measure)
    chosen = chooser.choose()
    while (too_large := chooser.above(chosen, budget_bytes)) is not None:
        chooser.bar(too_large)
        chosen = chooser.choose()
    figures, without = replay_fused(problem, schedule, chosen)
    apart_us = round(replay(problem, schedule).time_us, 3)
    operations = sum(len(part.runs(schedule)) for part in chosen)
    costs = dict(sorted(chooser.costs.items()))
    compiled = Compiled(len(chosen), operations, apart_us, apart_us, costs)
    return Fusion(dict(sorted(chosen.items())), figures, without, compiled)


def planned_parts(
    graph: Graph,
    problems: Sequence[Problem],
    schedule: Schedule,
    compiled: Compiled | None,
    budget_bytes: int,
) -> Mapping[Part, PartFigures]:
    """Return what a plan compiles of its schedule; nothing is measured.

    Raises:
        GraphError: the plan has no cost of a function that it would need.
    """
    if compiled is None:
        return {}

    def known(texts: Sequence[PartText]) -> Mapping[str, PartCost]:
        missing = [text.made[0] for text in texts if text.sha256 not in compiled.costs]
        if missing:
            raise GraphError(f"has no cost of the compiled part that makes {missing[0]}")
        return {text.sha256: compiled.costs[text.sha256] for text in texts}

    return choose_parts(graph, problems, schedule, budget_bytes, known).parts


@dataclass(slots=True)
class _Chooser:
    """Knows what functions cost, and asks for what it does not know."""

    graph: Graph
    problems: Sequence[Problem]
    schedule: Schedule
    measure: Measure
    costs: dict[str, PartCost] = field(default_factory=dict)
    texts: dict[Part, PartText] = field(default_factory=dict)
    runs: list[tuple[Part, ...]] = field(init=False)  # in pieces
    barred: set[Part] = field(default_factory=set)  # would raise the peak above the budget

    def __post_init__(self) -> None:
        fusible = fusible_in(self.graph)
        own_kernel = [has_own_kernel(operation) for operation in self.graph.operations]
        longest = longest_parts(self.problem, self.schedule, fusible)
        self.runs = [pieces_of(self.problem, self.schedule, part, own_kernel) for part in longest]
        self._learn(self.runs)

    @property
    def problem(self) -> Problem:
        """Return the problem of the example's lengths."""
        return self.problems[0]

    def choose(self) -> dict[Part, PartFigures]:
        """Return the stretches to compile that together save the most time."""
        return {
            part: self._figures(part)
            for pieces in self.runs
            for part in cheapest(pieces, self._apart_us, self._compiled_us)
        }

    def bar(self, part: Part) -> None:
        """Compile no such part; where it is a single piece, try its halves."""
        self.barred.add(part)
        for index, pieces in enumerate(self.runs):
            if part in pieces and (halves := part.halves(self.schedule)):
                at = pieces.index(part)
                self.runs[index] = (*pieces[:at], *halves, *pieces[at + 1 :])
                self._learn([self.runs[index]])

    def above(self, parts: Mapping[Part, PartFigures], budget_bytes: int) -> Part | None:
        """Return the part that sets a peak above the budget at some lengths, if one does."""
        for problem in self.problems:
            fused = fuse(problem, self.schedule, parts)
            figures = replay(fused.problem, fused.schedule)
            if figures.peak_bytes > budget_bytes:
                return fused.part_at(figures.peak_at)
        return None

    def _learn(self, runs: Iterable[tuple[Part, ...]]) -> None:
        """Write the functions of all stretches of runs, and measure those that are not known."""
        parts = [
            part
            for pieces in runs
            for part in stretches(pieces)
            if part not in self.texts and ends_of(self.problem, self.schedule, part).results
        ]
        for layer in _layers(parts):
            unmeasured = dict.fromkeys(layer, PartFigures(0.0, 0))
            self.texts |= write_fused(self.graph, self.problem, self.schedule, unmeasured).texts
        distinct = {self.texts[part].sha256: self.texts[part] for part in parts}
        self.costs.update(self.measure(list(distinct.values())))

    def _apart_us(self, part: Part) -> float:
        return added(self.problem.operations[p].time_us for p in part.runs(self.schedule))

    def _compiled_us(self, part: Part) -> float | None:
        if part not in self.texts or part in self.barred:
            return None
        cost = self.costs[self.texts[part].sha256]
        pays = not cost.refused and cost.time_us < _GAIN * cost.apart_us
        return self._figures(part).time_us if pays else None

    def _figures(self, part: Part) -> PartFigures:
        """Return a part's figures: it takes the share of its operations' time that was measured.

        Both times of a share are of the same minutes, and what else a machine did then is in both.
        """
        cost = self.costs[self.texts[part].sha256]
        time_us = self._apart_us(part) * cost.time_us / cost.apart_us
        return PartFigures(time_us, cost.workspace_bytes)


def _layers(parts: Iterable[Part]) -> list[list[Part]]:
    """Return parts in lists within which none overlap."""
    layers: list[list[Part]] = []
    for part in sorted(parts):
        for layer in layers:
            last = layer[-1]
            if (last.segment, last.stop) <= (part.segment, part.start):
                layer.append(part)
                break
        else:
            layers.append([part])
    return layers
