"""Why a value is retained or run again: what it takes, who needs it, what else could be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from remat_gen.ask.pin_patterns import Pins, pin
from remat_gen.explain.explain_names import names_in_module
from remat_gen.explain.explain_other import (
    Other,
    kept_instead,
    retained_instead,
    run_again_instead,
    sent_instead,
)
from remat_gen.ir.graph import Graph, Operation, Source
from remat_gen.picture.timeline_owners import Part, Residence, Stay, residence_of
from remat_gen.review.retrace import Retraced, retrace_file
from remat_gen.solver.law.problem import Held, Problem
from remat_gen.solver.law.sums import added


class Fate(Enum):
    """What a schedule does with a value."""

    OUTSIDE = "outside"  # a parameter, buffer or input: there before the step
    OUTPUT = "output"
    GRADIENT = "gradient"
    RETAINED = "retained"
    RERUN = "run again"
    OFFLOADED = "sent to the host"
    TRANSIENT = "transient"


@dataclass(frozen=True, slots=True)
class Reader:
    """An operation that reads a value. `again` where a re-run of it does."""

    operation: str
    backward: bool
    again: bool


@dataclass(frozen=True, slots=True)
class Explained:
    """A value in a schedule.

    `lives_us` are its stays, `at_peak` whether one of them is there at the peak; `made_by` is None
    for what no operation makes. `reruns` counts the re-runs of its operation. `rerunnable` is None
    where it does not matter. `pin` is the user's option that decides. `other` is the other choice,
    where there is one.
    """

    name: str
    nbytes: int
    shape: str
    kind: str
    fate: Fate
    made_by: Operation | None = None
    time_us: float = 0.0
    lives_us: tuple[tuple[float, float], ...] = ()
    at_peak: bool = False
    readers: tuple[Reader, ...] = ()
    reruns: int = 0
    rerunnable: bool | None = None
    pin: str = ""
    other: Other | None = None

    @property
    def source(self) -> Source | None:
        """Return the user's line, where it is known."""
        source = self.made_by.source if self.made_by else None
        return source if source and source.file else None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The values that a name stands for, in a plan with these figures."""

    retraced: Retraced
    asked: str
    values: tuple[Explained, ...]

    @property
    def shown(self) -> list[Explained]:
        """Return the values of forward; gradients and parameters only where there are no others."""
        values = [v for v in self.values if v.fate not in (Fate.OUTSIDE, Fate.GRADIENT)]
        return values or list(self.values)

    @property
    def operations(self) -> Sequence[Operation]:
        """Return the operations that outcomes refer to by index."""
        return self.retraced.traced.graph.operations

    @property
    def budget_bytes(self) -> int:
        """Return the plan's budget."""
        return self.retraced.existing.plan.asked.budget_bytes

    @property
    def eager_time_us(self) -> float:
        """Return the time of running everything once."""
        return added(operation.time_us for operation in self.retraced.problem.operations)


def explain_file(path: Path, name: str, rung: str | None = None) -> Explanation:
    """Explain what a name in a generated module stands for, in all steps or in those of a rung.

    Raises:
        UsageError: no value is called so; the message has near names.
        RematError: see `retrace_file`.
    """
    retraced = retrace_file(path, rung)
    storages = names_in_module(retraced).find(name)
    residence = residence_of(retraced.problem, retraced.schedule)
    explainer = _Explainer(retraced, residence, alone=len(storages) > 1)
    return Explanation(retraced, name, tuple(map(explainer.explain, storages)))


@dataclass(frozen=True, slots=True)
class _Explainer:
    retraced: Retraced
    residence: Residence
    alone: bool  # nothing is repaired: of several values only the choice itself is told

    def explain(self, storage: str) -> Explained:
        graph, problem = self.retraced.traced.graph, self.retraced.problem
        index = {value.name: i for i, value in enumerate(problem.values)}
        of, shape = graph.storages[storage], _shape(graph, storage)
        v = index.get(storage)
        if v is None:
            return Explained(storage, of.nbytes, shape, of.kind.value, Fate.OUTSIDE)
        p = problem.producers().get(v)
        stays, timeline = self.residence.of(v), self.retraced.replay.timeline
        peak_at = max(range(len(timeline)), key=lambda i: timeline[i].nbytes)
        fate = self._fate(v, stays)
        return Explained(
            name=storage,
            nbytes=problem.values[v].nbytes,
            shape=shape,
            kind=of.kind.value,
            fate=fate,
            made_by=None if p is None else graph.operations[p],
            time_us=0.0 if p is None else problem.operations[p].time_us,
            lives_us=tuple(map(self._span, stays)),
            at_peak=any(stay.begin <= peak_at < stay.end for stay in stays),
            readers=tuple(self._readers(v)),
            reruns=sum(run.again and run.operation == p for run in self.residence.runs),
            rerunnable=None if p is None else problem.operations[p].rerunnable,
            pin=" ".join(map(" ".join, self._pins(storage))),
            other=self._other(v, fate),
        )

    def _fate(self, v: int, stays: list[Stay]) -> Fate:
        parts = [self.residence.part(stay) for stay in stays]
        if Part.GRADIENT in parts:
            return Fate.GRADIENT
        if self.retraced.problem.values[v].held is Held.STEP:
            return Fate.OUTPUT
        if v in self.retraced.replay.travelled:
            return Fate.OFFLOADED
        if Part.RERUN in parts:
            return Fate.RERUN
        return Fate.RETAINED if Part.RETAINED in parts else Fate.TRANSIENT

    def _span(self, stay: Stay) -> tuple[float, float]:
        runs = self.residence.runs
        begin = runs[stay.begin].begin_us if stay.begin < len(runs) else self.residence.time_us
        return begin, runs[stay.end - 1].end_us if stay.end else begin

    def _readers(self, v: int) -> list[Reader]:
        graph = self.retraced.traced.graph
        operations = self.retraced.problem.operations
        reads = (run for run in self.residence.runs if v in operations[run.operation].inputs)
        found = (
            Reader(graph.operations[r.operation].name, operations[r.operation].backward, r.again)
            for r in reads
        )
        return list(dict.fromkeys(found))

    def _pins(self, storage: str) -> list[tuple[str, str]]:
        """Return the options that pin a value, with the patterns that were written."""
        plan, graph = self.retraced.existing.plan, self.retraced.traced.graph
        found = pin(self.retraced.problem, graph, Pins(plan.keep, plan.recompute))
        return [
            (option, pattern)
            for option, patterns in (("--keep", found.keep), ("--recompute", found.recompute))
            for pattern, storages in patterns.items()
            if storage in storages
        ]

    def _problem(self, v: int) -> Problem:
        """Return the problem with the plan's pins, but for those of one value."""
        plan, problem = self.retraced.existing.plan, self.retraced.problem
        own = {pattern for _, pattern in self._pins(problem.values[v].name)}
        others = (tuple(p for p in each if p not in own) for each in (plan.keep, plan.recompute))
        return pin(problem, self.retraced.traced.graph, Pins(*others)).problem

    def _other(self, v: int, fate: Fate) -> Other | None:
        problem, schedule = self._problem(v), self.retraced.schedule
        asked = self.retraced.existing.plan.asked
        if self.retraced.replay.travelled and fate in (Fate.RERUN, Fate.OFFLOADED):
            return kept_instead(problem, schedule, v, asked.budget_bytes)
        if self.retraced.replay.travelled and fate is Fate.RETAINED:
            return sent_instead(problem, schedule, v, asked.budget_bytes)
        budget_bytes = None if self.alone else asked.budget_bytes
        if fate is Fate.RERUN:
            return retained_instead(problem, schedule, v, budget_bytes)
        if fate is Fate.RETAINED:
            return run_again_instead(problem, schedule, v, budget_bytes)
        return None


def _shape(graph: Graph, storage: str) -> str:
    """Write dtype and shape of the tensor that a storage was made as."""
    tensor = graph.tensors.get(storage)
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]" if tensor else ""
