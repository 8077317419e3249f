"""The memory rows of a block's model, added only where a solution exceeds the peak."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import z3

from remat_gen.solver.block_variables import Variables
from remat_gen.solver.local import LocalBlock, LocalOperation
from remat_gen.solver.option import Option, backward_inside, forward_inside, gradient_line

Terms = Sequence[tuple[z3.BoolRef, int]]


class Rows:
    """Pseudo-Boolean rows: what is there and still needed in a step is at most the peak."""

    def __init__(
        self, block: LocalBlock, variables: Variables, optimizer: z3.Optimize, peak_bytes: int
    ) -> None:
        self.block, self.variables, self.optimizer = block, variables, optimizer
        self.peak_bytes = peak_bytes
        self.gradients = gradient_line(block)
        self.added: set[tuple[str, int, int]] = set()

    def add_exceeded(self, option: Option) -> bool:
        """Add the rows of the steps at which an option exceeds the peak; tell if any was new."""
        rows = [("backward", t, p) for t, p in self._exceeded_backward(option)]
        rows += [("forward", x, -1) for x in self._exceeded_forward(option)]
        new = [row for row in rows if row not in self.added]
        self.added.update(new)
        for kind, t, p in new:
            if kind == "forward":
                self._add_forward_row(t)
            elif p < 0:
                self._add_backward_row(t)
            else:
                self._add_rerun_row(t, p)
        return bool(new)

    def at_most(self, terms: Terms, room: int) -> None:
        """Add: the bytes of the true literals are at most `room`."""
        terms = [(literal, nbytes) for literal, nbytes in terms if nbytes]
        if room < 0:
            self.optimizer.add(z3.BoolVal(False))
        elif sum(nbytes for _, nbytes in terms) > room:
            self.optimizer.add(z3.PbLe(terms, room))

    def _exceeded_backward(self, option: Option) -> list[tuple[int, int]]:
        inside = backward_inside(self.block, option.stages, option.retained)
        return [(t, p) for nbytes, t, p in inside if nbytes > self.peak_bytes]

    def _exceeded_forward(self, option: Option) -> list[int]:
        inside = self._forward_inside(set(option.retained))
        return [x for x, nbytes in enumerate(inside) if nbytes > self.peak_bytes]

    def _forward_inside(self, retained: set[int]) -> list[int]:
        runs = tuple(range(len(self.block.forward)))
        return forward_inside(self.block, runs, self.block.exits() | retained, first=True)

    def _add_forward_row(self, x: int) -> None:
        """What is retained comes on top of what forward has there anyway."""
        base = self._forward_inside(set())[x]
        terms = [
            (literal, self._forward_inside({v})[x] - base)
            for v, literal in self.variables.kept.items()
        ]
        self.at_most(terms, self.peak_bytes - base)

    def _add_backward_row(self, t: int) -> None:
        """Count the values made before operation t that it or a later step reads."""
        variables = self.variables
        done = sum(stage <= t for stage in variables.stages) - 1
        needed = done if t in variables.stages else done + 1
        base = self.gradients[t] + self._made(self.block.backward[t])
        terms = self._alive(needed, lambda _: done, lambda _: done)
        self.at_most(terms, self.peak_bytes - base)

    def _add_rerun_row(self, t: int, p: int) -> None:
        """Bind only if operation p is re-run in the stage of t."""
        variables = self.variables
        s = variables.stages.index(t)
        room = self.peak_bytes - self.gradients[t] - self._made(self.block.forward[p])
        now = variables.ran[p, s]
        if s:
            now = z3.And(now, z3.Not(variables.ran[p, s - 1]))
        terms = self._alive(s, lambda q: s if q < p else s - 1, lambda q: s if q < p else s - 1)
        total = sum(nbytes for _, nbytes in terms)
        if room < 0:
            self.optimizer.add(z3.Not(now))
        elif total > room:
            switch = z3.FreshBool("now")
            self.optimizer.add(z3.Implies(now, switch))
            self.at_most([*terms, (switch, total - room)], total)

    def _alive(
        self, needed: int, made_by: Callable[[int], int], read_by: Callable[[int], int]
    ) -> list[tuple[z3.BoolRef, int]]:
        """Return literals that are true where a value is there and still needed, with its bytes.

        Backward's reads from stage `needed` on count; operation q's re-run counts as done up to
        stage `made_by(q)` as a producer and `read_by(q)` as a reader (-1: not at all).
        """
        variables = self.variables
        terms = []
        for v, kept in variables.kept.items():
            makers = [kept]
            producer = variables.producer[v]
            if made_by(producer) >= 0:
                makers.append(variables.ran[producer, made_by(producer)])
            if variables.last_read[v] >= needed:
                reasons: list[list[z3.BoolRef]] = [[]]
            else:
                reasons = [variables.still_to_run(q, read_by(q)) for q in variables.readers[v]]
            if reasons and self.block.values[v].nbytes:
                alive = z3.FreshBool("alive")
                for maker in makers:
                    for reason in reasons:
                        self.optimizer.add(z3.Implies(z3.And(maker, *reason), alive))
                terms.append((alive, self.block.values[v].nbytes))
        return terms

    def _made(self, operation: LocalOperation) -> int:
        made = sum(self.block.values[v].nbytes for v in operation.outputs)
        return made + operation.workspace_bytes
