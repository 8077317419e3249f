"""The problem of eager's step, which holds values for longer than a planned one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from remat_gen.solver.law.problem import Held, Operation, Problem


def of_eager(problem: Problem) -> Problem:
    """Return the problem of a step that eager runs: nodes hold what they use, and fill zeros alone.

    A node of autograd holds the gradients it was given and what forward saved for it until it has
    ended; the temporaries of an expression in C++ live until its result is there. Gradients of
    parameters are held as in a plan, so that a plan that runs nothing again never needs more.
    """
    leaving = _last_uses(problem)
    made: list[Operation] = []
    for node, group in groupby(problem.operations, lambda operation: operation.node):
        run = [replace(operation, over=operation.fills) for operation in group]
        made += run if node is None else _Node(problem, run, len(made), leaving).holding()
    return replace(problem, operations=tuple(made))


def _last_uses(problem: Problem) -> dict[int, int]:
    """Return for each value the last operation that makes or reads it; of held ones, the end."""
    last = {v: p for p, o in enumerate(problem.operations) for v in (*o.inputs, *o.outputs)}
    end = len(problem.operations)
    return {v: p if problem.values[v].held is Held.FREE else end for v, p in last.items()}


@dataclass(frozen=True)
class _Node:
    """The operations of a node of autograd, which stand one behind another from `start` on."""

    problem: Problem
    run: Sequence[Operation]
    start: int
    last_uses: dict[int, int]

    def holding(self) -> list[Operation]:
        """Return the operations; what is held until one has run, it reads."""
        reads = [dict.fromkeys(operation.inputs) for operation in self.run]
        filled = {operation.over for operation in self.run}
        for value, p in self._makers.items():
            if not self._leaves(value) and value not in filled:
                reads[self._expression_ends[p]].setdefault(value)
        given = dict.fromkeys(v for o in self.run for v in o.inputs if v not in self._makers)
        reads[-1] |= given | dict.fromkeys(v for o in self.run for v in o.saved)
        return [
            replace(operation, inputs=tuple(v for v in read if v not in operation.outputs))
            for operation, read in zip(self.run, reads, strict=True)
        ]

    @cached_property
    def _makers(self) -> dict[int, int]:
        return {v: p for p, operation in enumerate(self.run) for v in operation.outputs}

    @cached_property
    def _expression_ends(self) -> list[int]:
        """Return where the expression of each operation ends: those that lead to one result."""
        of = list(range(len(self.run)))
        for p, operation in enumerate(self.run):
            joined = {of[self._makers[v]] for v in operation.inputs if v in self._makers}
            if not self._is_behind(operation):
                of = [of[p] if expression in joined else expression for expression in of]
        last = {expression: p for p, expression in enumerate(of)}
        return [last[expression] for expression in of]

    def _is_behind(self, operation: Operation) -> bool:
        """Tell whether autograd sums up a gradient that was broadcast, when the node has ended."""
        sizes = self.problem.values
        return len(operation.inputs) == 1 and all(
            self._leaves(v) and sizes[v].nbytes < sizes[operation.inputs[0]].nbytes
            for v in operation.outputs
        )

    def _leaves(self, value: int) -> bool:
        return self.last_uses[value] >= self.start + len(self.run)
