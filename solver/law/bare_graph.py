"""Bare graphs: nodes with a time, one value each, and inputs; no model, no torch.

A node runs while its inputs and its output are resident together, and any node may run again, in
any order that its inputs allow: as a problem *every* operation is a rerunnable backward one.
Strategies over a chain of blocks see the graph *staged*, and are judged on the bare problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat_gen.solver.law.liveness import to_schedule
from remat_gen.solver.law.problem import Held, Operation, Problem, Value
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import replay


@dataclass(frozen=True, slots=True)
class Node:
    """A node: `time` in any unit, `inputs` as positions of earlier nodes.

    `layer` names the repeated layer that a forward node belongs to, "" outside of all.
    """

    name: str
    time: float
    nbytes: int
    backward: bool
    inputs: tuple[int, ...]
    layer: str = ""


@dataclass(frozen=True, slots=True)
class BareGraph:
    """Nodes in topological order; the values of `outputs` (positions) live to the end."""

    nodes: tuple[Node, ...]
    outputs: frozenset[int] = frozenset()

    def problem(self) -> Problem:
        """Return the problem that judges: value i is what node i makes."""
        return self._problem(range(len(self.nodes)), [True] * len(self.nodes))

    def staged(self) -> tuple[Problem, tuple[int, ...]]:
        """Return the graph as forward and backward, and the node behind each of its operations.

        A forward node that reads what backward makes is a backward one. Where no node is flagged,
        or all are, backward begins at the peak: what is made before it may be made again after it.
        """
        backward: list[bool] = []
        for node, flag in zip(self.nodes, self._flags(), strict=True):
            backward.append(flag or any(backward[i] for i in node.inputs))
        order = sorted(range(len(self.nodes)), key=lambda i: backward[i])
        return self._problem(order, backward), tuple(order)

    def _flags(self) -> list[bool]:
        flags = [node.backward for node in self.nodes]
        if any(flags) and not all(flags):
            return flags
        problem = self.problem()
        plain = to_schedule(problem, Program(((), tuple(range(len(flags))))))
        peak_at = replay(problem, plain).peak_at
        return [i >= peak_at for i in range(len(flags))]

    def _problem(self, order: Sequence[int], backward: Sequence[bool]) -> Problem:
        place = {i: p for p, i in enumerate(order)}
        operations, values = [], []
        for i in order:
            node, inputs = self.nodes[i], tuple(place[j] for j in self.nodes[i].inputs)
            made = (node.name, node.time, 0, inputs, (place[i],), backward[i])
            operations.append(Operation(*made, layer=node.layer))
            held = Held.STEP if i in self.outputs else Held.FREE
            values.append(Value(node.name, node.nbytes, held))
        return Problem(tuple(operations), tuple(values))
