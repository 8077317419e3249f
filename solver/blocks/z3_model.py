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

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import z3

from remat_gen.solver.blocks.block_option import (
    Option,
    RerunStages,
    backward_inside,
    backward_steps,
    evaluate,
    forward_inside,
    operations_for,
)
from remat_gen.solver.blocks.local_block import LocalBlock, LocalOperation, Role
from remat_gen.solver.law.sums import added

ENGINE = "rc2"
WEIGHT_UNITS = 10**6  # the block's summed forward time in integer weights
LARGEST = 2**30  # summed coefficients of a row: z3 takes C ints

Step: TypeAlias = tuple[str, int, int]
Terms: TypeAlias = list[tuple[z3.BoolRef, int]]


class BlockModel:
    """The model of one block, in a z3 context of its own: no other block's history reaches it.

    A stage is the number, from 0, of a backward operation that reads forward values: a re-run
    before any other could wait for the next of these. `rounded` tells that some row was stricter
    than the bytes say: what it rules out is not proved.
    """

    def __init__(self, block: LocalBlock, rlimit: int) -> None:
        """Set the rules up; `rlimit` bounds z3's work per point in its own deterministic units."""
        self.block, self.context = block, z3.Context()
        self.optimizer = z3.Optimize(ctx=self.context)
        # Without ctrl_c=False z3 swallows an interrupt and answers unknown.
        self.optimizer.set(maxsat_engine=ENGINE, rlimit=rlimit, ctrl_c=False)
        self.stages = [
            t for t, o in enumerate(block.backward) if any(block.decided(v) for v in o.inputs)
        ]
        self.last = len(self.stages) - 1
        self.operations = operations_for(block, {v for o in block.backward for v in o.inputs})
        self.producer = block.producers()
        made = (v for p in self.operations for v in block.forward[p].outputs)
        self.kept = {v: self._variable(f"K{v}") for v in made if block.decided(v)}
        self.ran = {
            (p, s): self._variable(f"X{p}_{s}")
            for p in self.operations
            for s in range(self.last + 1)
        }
        self.rules = self._rules()
        self.optimizer.add(*self.rules)
        self._add_weights()
        self.rows: dict[Step, tuple[Terms, int]] = {}
        self.rounded = False

    def solve(self, saved_bytes: int, peak_bytes: int) -> tuple[Option | None, bool]:
        """Return the option of least re-run time within budgets, if any; and if that is proved."""
        known = len(self.rules)
        self.optimizer.push()
        answer = self._refined(saved_bytes, peak_bytes)
        self.optimizer.pop()
        self.optimizer.add(*self.rules[known:])
        return answer

    def _refined(self, saved_bytes: int, peak_bytes: int) -> tuple[Option | None, bool]:
        """Solve, measure exactly, add the rows that were exceeded, until none is."""
        add, pinned = self.optimizer.add, self.block.bytes_of(Role.PINNED)
        saved = [
            (literal, self.block.values[v].nbytes)
            for v, literal in self.kept.items()
            if self.block.values[v].role is not Role.EXIT
        ]
        add(self._at_most(saved, saved_bytes - pinned))
        add(*(self._at_most(terms, peak_bytes - base) for terms, base in self.rows.values()))
        while (result := self.optimizer.check()) == z3.sat:
            option = evaluate(self.block, self._stages_of(self.optimizer.model()))
            if option.peak_bytes <= peak_bytes:
                return option, True
            new = [step for step in self._exceeded(option, peak_bytes) if step not in self.rows]
            if not new:
                return None, False
            for step in new:
                known = len(self.rules)
                terms, base = self.rows[step] = self._row(*step)
                add(*self.rules[known:], self._at_most(terms, peak_bytes - base))
        return None, bool(result == z3.unsat)

    def _variable(self, name: str) -> z3.BoolRef:
        return z3.Bool(name, self.context)

    def _rules(self) -> list[z3.BoolRef]:
        """Return what holds within any budget; definitions of literals in rows come to it."""
        block = self.block
        rules = [z3.Not(kept) for v, kept in self.kept.items() if block.values[v].recompute]
        for s, t in enumerate(self.stages):
            rules += [self._there(v, s) for v in block.backward[t].inputs if v in self.kept]
            for p in self.operations:
                now = self.ran[p, s]
                rules += [z3.Implies(self.ran[p, s - 1], now)] if s else []
                reads = (v for v in block.forward[p].inputs if v in self.kept)
                rules += [z3.Implies(now, self._there(v, s)) for v in reads]
        return rules

    def _there(self, v: int, s: int) -> z3.BoolRef:
        """Return that `v` was retained, or made again in stage `s` or before."""
        return z3.Or(self.kept[v], self.ran[self.producer[v], s])

    def _add_weights(self) -> None:
        """Weigh each re-run by its time; one unit more, so that fewer re-runs break ties."""
        times = {p: self.block.forward[p].time_us for p in self.operations}
        total = added(times.values()) or 1.0
        for p, time_us in times.items():
            weight = round(time_us / total * WEIGHT_UNITS) + 1
            self.optimizer.add_soft(z3.Not(self.ran[p, self.last]), weight)

    def _stages_of(self, model: z3.ModelRef) -> RerunStages:
        stages: list[list[int]] = [[] for _ in self.block.backward]
        for p in self.operations:
            ran = [t for s, t in enumerate(self.stages) if z3.is_true(model[self.ran[p, s]])]
            if ran:
                stages[ran[0]].append(p)
        return tuple(tuple(stage) for stage in stages)

    def _exceeded(self, option: Option, peak_bytes: int) -> list[Step]:
        """Return the steps at which an option exceeds the peak."""
        steps = [("backward", t, p) for t, p in backward_steps(option.stages)]
        steps += [("forward", x, -1) for x in range(len(self.block.forward))]
        inside = backward_inside(self.block, option.stages, option.retained)
        inside += self._forward_inside(option.retained)
        return [s for s, n in zip(steps, inside, strict=True) if n > peak_bytes]

    def _forward_inside(self, retained: Sequence[int]) -> list[int]:
        whole = range(len(self.block.forward))
        return forward_inside(self.block, whole, {*self.block.exits(), *retained}, first=True)

    def _at_most(self, terms: Terms, room: int) -> z3.BoolRef:
        """Return: the bytes of the true literals are at most `room`; large ones in larger units."""
        total = sum(nbytes for _, nbytes in terms)
        if room < 0 or total <= room:
            return z3.BoolVal(room >= 0, self.context)
        unit = -(-total // LARGEST)
        self.rounded = self.rounded or unit > 1
        rounded_up = [(literal, -(-nbytes // unit)) for literal, nbytes in terms if nbytes]
        return z3.PbLe(rounded_up, room // unit)

    def _row(self, kind: str, t: int, p: int) -> tuple[Terms, int]:
        """Return the terms of a step's row and the bytes that are there in any case.

        In forward what is retained comes on top of what is there anyway; in backward what was made
        before and a step to come reads; inside a re-run likewise, if it is in that stage.
        """
        if kind == "forward":
            base = self._forward_inside(())[t]
            alone = {v: self._forward_inside((v,))[t] - base for v in self.kept}
            return [(self.kept[v], nbytes) for v, nbytes in alone.items()], base
        base = self._undecided(t)
        if p < 0:
            done = sum(stage <= t for stage in self.stages) - 1
            terms = self._alive(
                done if t in self.stages else done + 1, dict.fromkeys(self.operations, done)
            )
            return terms, base + _made(self.block, self.block.backward[t])
        s = self.stages.index(t)
        now = [self.ran[p, s], *([z3.Not(self.ran[p, s - 1])] if s else [])]
        made = (self._named([now]), base + _made(self.block, self.block.forward[p]))
        return [made, *self._alive(s, {q: s - (q >= p) for q in self.operations}, now)], 0

    def _undecided(self, t: int) -> int:
        """Return the bytes of gradients and pinned values before a backward operation."""
        block = self.block
        values = tuple(
            replace(value, nbytes=0) if block.decided(v) else value
            for v, value in enumerate(block.values)
        )
        inside = backward_inside(replace(block, values=values), ((),) * len(block.backward), ())
        return inside[t] - _made(block, block.backward[t])

    def _alive(self, needed: int, done: dict[int, int], given: Sequence[z3.BoolRef] = ()) -> Terms:
        """Return literals that are true where a value is there and still needed, with its bytes.

        Backward's reads from stage `needed` on count; operation q's re-run counts as done up to
        stage `done[q]` (-1: not at all). Only what holds under `given` counts.
        """
        terms = []
        for v, kept in self.kept.items():
            p, nbytes = self.producer[v], self.block.values[v].nbytes
            makers = [kept] if done[p] < 0 else [kept, self.ran[p, done[p]]]
            reads = (self.block.backward[t].inputs for t in self.stages[needed:])
            reasons = (
                [[]]
                if any(v in read for read in reads)
                else [
                    [
                        self.ran[q, self.last],
                        *([z3.Not(self.ran[q, done[q]])] if done[q] >= 0 else []),
                    ]
                    for q in self.operations
                    if v in self.block.forward[q].inputs
                ]
            )
            if reasons and nbytes:
                causes = [[*given, maker, *reason] for maker in makers for reason in reasons]
                terms.append((self._named(causes), nbytes))
        return terms

    def _named(self, causes: list[list[z3.BoolRef]]) -> z3.BoolRef:
        """Return a new literal that is true where all literals of some cause are."""
        literal = self._variable(f"row{len(self.rules)}")
        self.rules += [z3.Or(literal, *(z3.Not(part) for part in cause)) for cause in causes]
        return literal


def _made(block: LocalBlock, operation: LocalOperation) -> int:
    return operation.extra_bytes + sum(block.values[v].nbytes for v in operation.outputs)
