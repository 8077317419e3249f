"""Checkmate's linear program over stages, with rows that count memory tightly.

Letters follow the paper: R[t,p]: operation p is re-run in stage t; S[t,v]: value v
is carried into stage t. As there, R is lower triangular, its unit diagonal (the first runs) being
constants here, and
- R[t,p] ≤ S[t,u] + R[t,q] for each input u, made by q, of operation p; and for the stage's own;
- S[t+1,v] ≤ S[t,v] + R[t,q].
The paper counts memory by a recurrence U over FREE, whose products of Booleans it linearises. Here
E[t,v,p] is at least R[t,p], E of the next reader of v in the stage, and S[t+1,v] in the end: value
v is still needed where reader p stands. What is there while an operation runs is then a sum: E of
what is made before it, S of what is made after it (`memory_rows`). A value is not both carried
into a stage and made in it: its readers all come later, so it might as well have been dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from remat_gen.solver.checkmate.checkmate_stages import CheckmateStage, CheckmateStages
from remat_gen.solver.checkmate.linear_model import Floats, LinearModel
from remat_gen.solver.checkmate.memory_rows import MemoryRows


@dataclass(frozen=True, slots=True)
class CheckmatePlan:
    """Values of the variables: R by (stage, operation), S by (stage, value)."""

    reruns: dict[tuple[int, int], float]
    carried: dict[tuple[int, int], float]


@dataclass(frozen=True, slots=True)
class StageModel:
    """The program of one budget; without a solution if something exceeds it in any case."""

    stages: CheckmateStages
    model: LinearModel
    feasible: bool

    def plan(self, x: Floats) -> CheckmatePlan:
        """Return R and S at a solution."""
        reruns, carried = {}, {}
        for stage in self.stages.stages:
            t = stage.last
            reruns.update({(t, p): float(x[self.model.at("R", t, p)]) for p in stage.again})
            carried.update({(t, v): float(x[self.model.at("S", t, v)]) for v in stage.carried})
        return CheckmatePlan(reruns, carried)


def stage_model(
    stages: CheckmateStages, budget_bytes: int, *, unit_bytes: float, unit_us: float
) -> StageModel:
    """Return the program; sizes and times are divided by the units."""
    model = LinearModel()
    operations = stages.problem.operations
    for stage in stages.stages:
        for p in stage.again:
            model.add("R", stage.last, p, cost=operations[p].time_us / unit_us, whole=True)
        for v in stage.carried:
            model.add("S", stage.last, v, whole=True)
    for stage in stages.stages:
        _add_reads(model, stages, stage)
    for stage, following in pairwise(stages.stages):
        _add_carried(model, stages, stage, following)
    memory = MemoryRows(stages, model, budget_bytes, unit_bytes)
    return StageModel(stages, model, memory.add())


def _add_reads(model: LinearModel, stages: CheckmateStages, stage: CheckmateStage) -> None:
    """An operation that runs finds its inputs carried or made again, and none of them both."""
    t, operations = stage.last, stages.problem.operations
    for p in stage.again:
        for u in stages.decided(operations[p].inputs):
            terms = [(index, -1.0) for index in _sources(model, stages, stage, u)]
            model.at_most([(model.at("R", t, p), 1.0), *terms], 0.0)
    for u in stages.decided(operations[t].inputs):
        model.at_most([(index, -1.0) for index in _sources(model, stages, stage, u)], -1.0)
    for v in stage.carried:
        sources = _sources(model, stages, stage, v)
        if len(sources) > 1:
            model.at_most([(index, 1.0) for index in sources], 1.0)


def _add_carried(
    model: LinearModel, stages: CheckmateStages, stage: CheckmateStage, following: CheckmateStage
) -> None:
    """What is carried on was carried into this stage or is made in it."""
    for v in following.carried:
        if stages.producer[v] != stage.last:
            terms = [(index, -1.0) for index in _sources(model, stages, stage, v)]
            model.at_most([(model.at("S", following.last, v), 1.0), *terms], 0.0)


def _sources(
    model: LinearModel, stages: CheckmateStages, stage: CheckmateStage, v: int
) -> list[int]:
    """Return the variables S[t,v] and R[t, producer of v], those that there are."""
    t = stage.last
    found = (model.get("S", t, v), model.get("R", t, stages.producer[v]))
    return [index for index in found if index is not None]
