"""The memory rows of a block's model, added only where a solution exceeds the peak."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import z3

from remat_gen.solver.blocks.block_option import (
    Option,
    backward_inside,
    forward_inside,
    gradient_line,
)
from remat_gen.solver.blocks.local_block import LocalBlock, LocalOperation
from remat_gen.solver.blocks.z3_variables import Variables

LARGEST = 2**30  # summed coefficients of a row: z3 takes C ints

WeightedLiteral: TypeAlias = tuple[z3.BoolRef, int]
MemoryRow: TypeAlias = tuple[str, int, int]


class Rows:
    """Pseudo-Boolean rows: what is there and still needed in a step is at most the peak.

    What defines "there and still needed" does not depend on budgets: after a point it moves from
    the popped scope to the solver's base, and rows that were needed once are added from the start.
    `rounded` tells that some row was stricter than the bytes say: what it rules out is not proved.
    """

    def __init__(self, block: LocalBlock, variables: Variables, optimizer: z3.Optimize) -> None:
        self.block, self.variables, self.optimizer = block, variables, optimizer
        self.peak_bytes = 0
        self.gradients = gradient_line(block)
        self.known: dict[MemoryRow, tuple[list[WeightedLiteral], int]] = {}
        self.pending: list[z3.BoolRef] = []
        self.names = 0
        self.rounded = False

    def begin(self, peak_bytes: int) -> None:
        """Start a point: bind all rows known so far to its peak."""
        self.peak_bytes = peak_bytes
        for terms, base in self.known.values():
            self.at_most(terms, peak_bytes - base)

    def end(self) -> None:
        """End a point, after the solver's pop: keep the definitions it made."""
        self.optimizer.add(*self.pending)
        self.pending.clear()

    def add_exceeded(self, option: Option) -> bool:
        """Add the rows of the steps at which an option exceeds the peak; tell if any was new."""
        steps = backward_inside(self.block, option.stages, option.retained)
        runs = enumerate(self._forward_inside(set(option.retained)))
        rows = [(("backward", t, p), nbytes) for nbytes, t, p in steps]
        rows += [(("forward", x, -1), nbytes) for x, nbytes in runs]
        over = (row for row, nbytes in rows if nbytes > self.peak_bytes)
        new = [row for row in over if row not in self.known]
        for row in new:
            terms, base = self.known[row] = self._row(*row)
            self.at_most(terms, self.peak_bytes - base)
        return bool(new)

    def _row(self, kind: str, t: int, p: int) -> tuple[list[WeightedLiteral], int]:
        """Return the terms of a row and the bytes that are there in any case."""
        if kind == "forward":
            return self._forward_row(t)
        return self._backward_row(t) if p < 0 else self._rerun_row(t, p)

    def at_most(self, terms: Sequence[WeightedLiteral], room: int) -> None:
        """Add: the bytes of the true literals are at most `room`; large ones in larger units."""
        terms = [(literal, nbytes) for literal, nbytes in terms if nbytes]
        total = sum(nbytes for _, nbytes in terms)
        if room < 0:
            self.optimizer.add(z3.BoolVal(False, self.variables.context))
        elif total > room:
            unit = -(-total // LARGEST)
            self.rounded = self.rounded or unit > 1
            rounded_up = [(literal, -(-nbytes // unit)) for literal, nbytes in terms]
            self.optimizer.add(z3.PbLe(rounded_up, room // unit))

    def _forward_inside(self, retained: set[int]) -> list[int]:
        runs = tuple(range(len(self.block.forward)))
        return forward_inside(self.block, runs, self.block.exits() | retained, first=True)

    def _forward_row(self, x: int) -> tuple[list[WeightedLiteral], int]:
        """What is retained comes on top of what forward has there anyway."""
        base = self._forward_inside(set())[x]
        terms = [
            (literal, self._forward_inside({v})[x] - base)
            for v, literal in self.variables.kept.items()
        ]
        return terms, base

    def _backward_row(self, t: int) -> tuple[list[WeightedLiteral], int]:
        """Count the values made before operation t that it or a later step reads."""
        variables = self.variables
        done = sum(stage <= t for stage in variables.stages) - 1
        needed = done if t in variables.stages else done + 1
        terms = self._alive(needed, lambda _: done)
        return terms, self.gradients[t] + self._made(self.block.backward[t])

    def _rerun_row(self, t: int, p: int) -> tuple[list[WeightedLiteral], int]:
        """Bind only if operation p is re-run in the stage of t: then all that is there counts."""
        variables = self.variables
        s = variables.stages.index(t)
        now = [variables.ran[p, s]]
        if s:
            now.append(z3.Not(variables.ran[p, s - 1]))
        made = [(self._named([now]), self._made(self.block.forward[p]) + self.gradients[t])]
        terms = self._alive(s, lambda q: s if q < p else s - 1, given=now)
        return made + terms, 0

    def _alive(
        self,
        needed: int,
        done: Callable[[int], int],
        given: Sequence[z3.BoolRef] = (),
    ) -> list[WeightedLiteral]:
        """Return literals that are true where a value is there and still needed, with its bytes.

        Backward's reads from stage `needed` on count; operation q's re-run counts as done up to
        stage `done(q)` (-1: not at all). Only what holds under `given` counts.
        """
        variables = self.variables
        terms = []
        for v, kept in variables.kept.items():
            makers = [kept]
            producer = variables.producer[v]
            if done(producer) >= 0:
                makers.append(variables.ran[producer, done(producer)])
            reasons: list[list[z3.BoolRef]] = [[]]
            if variables.last_read[v] < needed:
                reasons = [variables.still_to_run(q, done(q)) for q in variables.readers[v]]
            if reasons and self.block.values[v].nbytes:
                causes = [[*given, maker, *reason] for maker in makers for reason in reasons]
                terms.append((self._named(causes), self.block.values[v].nbytes))
        return terms

    def _named(self, causes: list[list[z3.BoolRef]]) -> z3.BoolRef:
        """Return a new literal that is true where all literals of some cause are."""
        literal = z3.Bool(f"row{self.names}", self.variables.context)
        self.names += 1
        rules = [z3.Or(literal, *(z3.Not(part) for part in cause)) for cause in causes]
        self.optimizer.add(*rules)
        self.pending.extend(rules)
        return literal

    def _made(self, operation: LocalOperation) -> int:
        made = sum(self.block.values[v].nbytes for v in operation.outputs)
        return made + operation.extra_bytes
