"""The options of a block as a weighted MaxSAT problem for z3, one (saved, peak) budget at a time.

Each operation is re-run at most once. Letters follow Checkmate (Jain et al., 2020), with stages
t = the backward operations that read forward values:
- K[v]: value v is retained from forward (S[v,0] there);
- X[p,t]: operation p was re-run in stage t or before, so R[p,t] = X[p,t] and not X[p,t-1];
- a read of u in stage t needs K[u] or X[producer(u), t].
The memory inside a step is a pseudo-Boolean row over "v is there and still needed". Rows are added
only where a solution, measured exactly, exceeds the peak; measured solutions are never cheaper in
memory than the rows say, so the last one is optimal for the model with all rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import z3

from remat_gen.solver.blocks.block_option import Option, RerunStages, evaluate
from remat_gen.solver.blocks.local_block import LocalBlock, Role
from remat_gen.solver.blocks.z3_rows import Rows
from remat_gen.solver.blocks.z3_variables import Variables
from remat_gen.solver.law.sums import added

ENGINE = "rc2"
WEIGHT_UNITS = 10**6  # the block's summed forward time in integer weights


@dataclass(frozen=True, slots=True)
class BudgetPoint:
    """Budgets for an option; the frontier behind the block is there anyway."""

    saved_bytes: int
    peak_bytes: int


class BlockModel:
    """The model of one block, in a z3 context of its own: no other block's history reaches it."""

    def __init__(self, block: LocalBlock, rlimit: int) -> None:
        """Set the rules up; `rlimit` bounds z3's work per point in its own deterministic units."""
        self.block = block
        self.context = z3.Context()
        self.optimizer = z3.Optimize(ctx=self.context)
        # Without ctrl_c=False z3 swallows an interrupt and answers unknown.
        self.optimizer.set(maxsat_engine=ENGINE, rlimit=rlimit, ctrl_c=False)
        self.variables = Variables(block, self.context)
        self.rows = Rows(block, self.variables, self.optimizer)
        self._add_rules()
        self._add_weights()

    def solve(self, point: BudgetPoint) -> tuple[Option | None, bool]:
        """Return the option of least re-run time within budgets, if any; and if that is proved."""
        self.optimizer.push()
        self._add_saved_row(point)
        self.rows.begin(point.peak_bytes)
        answer = self._refine(point)
        self.optimizer.pop()
        self.rows.end()
        return answer

    def _refine(self, point: BudgetPoint) -> tuple[Option | None, bool]:
        """Solve, measure exactly, add the rows that were exceeded, until none is."""
        while (result := self.optimizer.check()) == z3.sat:
            option = evaluate(self.block, self._stages_of(self.optimizer.model()))
            if option.peak_bytes <= point.peak_bytes:
                return option, True
            if not self.rows.add_exceeded(option):
                return None, False
        return None, bool(result == z3.unsat)

    def _add_rules(self) -> None:
        variables, add = self.variables, self.optimizer.add
        gone = [v for v in variables.values if self.block.values[v].recompute]
        add(*(z3.Not(variables.kept[v]) for v in gone))
        for s, t in enumerate(variables.stages):
            add(*(variables.there(v, s) for v in variables.own(self.block.backward[t].inputs)))
            for p in variables.operations:
                now = variables.ran[p, s]
                if s:
                    add(z3.Implies(variables.ran[p, s - 1], now))
                for v in variables.own(self.block.forward[p].inputs):
                    add(z3.Implies(now, variables.there(v, s)))

    def _add_saved_row(self, point: BudgetPoint) -> None:
        terms = [
            (literal, self.block.values[v].nbytes)
            for v, literal in self.variables.kept.items()
            if self.block.values[v].role is not Role.EXIT
        ]
        self.rows.at_most(terms, point.saved_bytes - self.block.bytes_of(Role.PINNED))

    def _add_weights(self) -> None:
        """Weigh each re-run by its time; one unit more, so that fewer re-runs break ties."""
        times = {p: self.block.forward[p].time_us for p in self.variables.operations}
        total = added(times.values()) or 1.0
        for p, time_us in times.items():
            weight = round(time_us / total * WEIGHT_UNITS) + 1
            self.optimizer.add_soft(z3.Not(self.variables.ran[p, self.variables.last]), weight)

    def _stages_of(self, model: z3.ModelRef) -> RerunStages:
        stages: list[list[int]] = [[] for _ in self.block.backward]
        variables, ran = self.variables, self.variables.ran
        for p in variables.operations:
            if z3.is_true(model[ran[p, variables.last]]):
                turns = enumerate(variables.stages)
                stages[next(t for s, t in turns if z3.is_true(model[ran[p, s]]))].append(p)
        return tuple(tuple(stage) for stage in stages)
