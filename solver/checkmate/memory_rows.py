"""The memory rows of Checkmate's linear program: E, and what is there while an operation runs."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from remat_gen.solver.checkmate.checkmate_stages import CheckmateStage, CheckmateStages
from remat_gen.solver.checkmate.linear_model import LinearModel, LinearTerm


@dataclass(frozen=True, slots=True)
class _Need:
    """Whether a value, once made, is needed at or after each reader of a stage, in order.

    `variables[i]` tells it for the i-th reader, and the last one, without a reader, for the stage's
    end (None: no). With `always`, the stage's own operation reads it.
    """

    readers: tuple[int, ...] = ()
    variables: tuple[int | None, ...] = (None,)
    always: bool = False

    def at(self, p: int) -> int | None:
        """Return the variable for the time when operation p runs."""
        return self.variables[bisect_left(self.readers, p)]


@dataclass(slots=True)
class MemoryRows:
    """Adds variables E and the rows of all steps to the model of one budget."""

    stages: CheckmateStages
    model: LinearModel
    budget_bytes: int
    unit_bytes: float
    feasible: bool = True

    def add(self) -> bool:
        """Add all rows; return False where the budget cannot hold what is there in any case."""
        self._add_forward()
        stages = self.stages.stages
        for stage, following in zip(stages, (*stages[1:], None), strict=True):
            needs = self._needs(stage, following)
            for p in stage.again:
                made = self.stages.made_bytes(p) / self.unit_bytes
                self._add_row(stage, needs, p, [(self.model.at("R", stage.last, p), made)], 0)
            self._add_row(stage, needs, stage.last, [], self.stages.made_bytes(stage.last))
        return self.feasible

    def _add_forward(self) -> None:
        """What is retained for the first stage comes on top of what forward has there anyway."""
        first = self.stages.stages[0].last if self.stages.stages else -1
        for step in self.stages.forward:
            kept = [(self.model.get("S", first, v), self._size(v)) for v in step.retained]
            self._within([(i, size) for i, size in kept if i is not None], step.inside_bytes)

    def _needs(self, stage: CheckmateStage, following: CheckmateStage | None) -> dict[int, _Need]:
        """Return the needs of all values that may be there in a stage; add their variables E."""
        operations = self.stages.problem.operations
        readers: dict[int, list[int]] = {}
        for p in stage.again:
            for v in self.stages.decided(operations[p].inputs):
                readers.setdefault(v, []).append(p)
        made = tuple(v for p in stage.again for v in operations[p].outputs)
        own = set(operations[stage.last].inputs)
        needs = {}
        for v in self.stages.decided((*stage.carried, *made)):
            after = self.model.get("S", following.last, v) if following else None
            need = self._line(stage, v, readers.get(v, []), after)
            needs[v] = _Need(always=True) if v in own else need
        return needs

    def _line(self, stage: CheckmateStage, v: int, readers: list[int], after: int | None) -> _Need:
        """Go from the last reader to the first: needed there, or further on."""
        variables = [after]
        for p in reversed(readers):
            run, later = self.model.at("R", stage.last, p), variables[-1]
            if later is None:
                variables.append(run)
                continue
            either = self.model.add("E", stage.last, v, p)
            self.model.at_most([(run, 1.0), (either, -1.0)], 0.0)
            self.model.at_most([(later, 1.0), (either, -1.0)], 0.0)
            variables.append(either)
        return _Need(tuple(readers), tuple(reversed(variables)))

    def _add_row(
        self,
        stage: CheckmateStage,
        needs: dict[int, _Need],
        p: int,
        terms: list[LinearTerm],
        fixed_bytes: int,
    ) -> None:
        """Bound what is there while operation p runs in a stage."""
        fixed_bytes += stage.fixed_bytes
        for v, need in needs.items():
            made_before = self.stages.producer[v] < p
            if made_before and need.always:
                fixed_bytes += self.stages.problem.values[v].nbytes
                continue
            there = need.at(p) if made_before else self.model.get("S", stage.last, v)
            if there is not None:
                terms.append((there, self._size(v)))
        self._within(terms, fixed_bytes)

    def _within(self, terms: list[LinearTerm], fixed_bytes: int) -> None:
        room = (self.budget_bytes - fixed_bytes) / self.unit_bytes
        if room < 0:
            self.feasible = False
        elif sum(factor for _, factor in terms) > room:
            self.model.at_most(terms, room)

    def _size(self, v: int) -> float:
        return self.stages.problem.values[v].nbytes / self.unit_bytes
