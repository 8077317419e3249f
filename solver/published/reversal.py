"""A training step as a chain of steps to reverse: what `griewank` advances and turns.

State i is the value that crosses the i-th articulation point (state 0: nothing). Block i makes
state i + 1 from state i. Turn i is the backward operations that need no other forward values than
state i and what block i makes. Forward values that a turn reads from elsewhere are retained.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.published.articulation import Cut, articulation_cuts, forward_vertices
from remat_gen.solver.published.local_forwards import droppable_values


@dataclass(frozen=True, slots=True)
class Turn:
    """The backward operations of a step, which starts at block `block` of the forward chain."""

    block: int
    backward: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reversal:
    """The steps of a problem; `blocks` are forward operations that may run again, by block.

    `states[i]` enters block i; `remade` are the values that are not retained besides states.
    """

    problem: Problem
    blocks: tuple[tuple[int, ...], ...]
    states: tuple[frozenset[int], ...]
    turns: tuple[Turn, ...]
    remade: frozenset[int]

    def advance(self, start: int, stop: int) -> list[int]:
        """Return the operations that make the state of step `stop` from that of step `start`."""
        runs: list[int] = []
        for block in range(self.turns[start].block, self.turns[stop].block):
            runs += self._least(block, set(self.states[block + 1]))
        return runs

    def turn(self, step: int, *, again: bool, keep_exit: bool) -> list[int]:
        """Return the backward operations of a step, after what they need `again` from its block.

        With `keep_exit` that is not the state behind the block: the turn before this one had it.
        """
        turn, problem = self.turns[step], self.problem
        made = {v for p in self.blocks[turn.block] for v in problem.operations[p].outputs}
        wanted = {v for t in turn.backward for v in problem.operations[t].inputs}
        reads = [not made.isdisjoint(problem.operations[t].inputs) for t in turn.backward]
        first = reads.index(True) if True in reads else 0
        if keep_exit:
            wanted -= self.states[turn.block + 1] if turn.block + 1 < len(self.states) else set()
        needed = self._least(turn.block, wanted) if again else []
        return [*turn.backward[:first], *needed, *turn.backward[first:]]

    def _least(self, block: int, wanted: set[int]) -> list[int]:
        """Return the operations of a block that make the wanted values, from its state."""
        missing = (wanted & self.remade) - self.states[block]
        runs = []
        for p in reversed(self.blocks[block]):
            if not missing.isdisjoint(self.problem.operations[p].outputs):
                runs.append(p)
                inputs = self.problem.operations[p].inputs
                missing.update(
                    v for v in inputs if v in self.remade and v not in self.states[block]
                )
        return runs[::-1]


def reversal_of(problem: Problem) -> Reversal:
    """Return the steps of a problem, first to last."""
    cuts = _with_end(problem, articulation_cuts(problem))
    starts = [0, *(cut.position for cut in cuts), problem.forward_count]
    vertices = forward_vertices(problem)
    blocks = tuple(tuple(p for p in vertices if a <= p < b) for a, b in pairwise(starts))
    states = (frozenset[int](), *(frozenset(cut.values) for cut in cuts))
    lives = _lives(problem, blocks, states)
    places = _places(problem, lives)
    retained = {
        v
        for t, place in places.items()
        for v in problem.operations[t].inputs
        if v in lives and not lives[v][0] <= place <= lives[v][1]
    }
    turns = [
        Turn(block, tuple(t for t, place in places.items() if place == block))
        for block in sorted({0, *places.values()})
    ]
    return Reversal(problem, blocks, states, tuple(turns), frozenset(lives) - retained)


def _with_end(problem: Problem, cuts: list[Cut]) -> list[Cut]:
    """Cut behind the last vertex as well, where it makes one value: backward starts from that."""
    vertices = forward_vertices(problem)
    if not vertices:
        return cuts
    droppable = droppable_values(problem)
    made = tuple(v for v in problem.operations[vertices[-1]].outputs if v in droppable)
    return [*cuts, Cut(vertices[-1] + 1, made)] if len(made) == 1 else cuts


def _lives(
    problem: Problem, blocks: tuple[tuple[int, ...], ...], states: tuple[frozenset[int], ...]
) -> dict[int, tuple[int, int]]:
    """Return for each droppable value the block that makes it and the last one that it enters."""
    droppable = droppable_values(problem)
    lives = {
        v: (i, i)
        for i, block in enumerate(blocks)
        for p in block
        for v in problem.operations[p].outputs
        if v in droppable
    }
    for i, state in enumerate(states):
        lives.update({v: (lives[v][0], i) for v in state})
    return lives


def _places(problem: Problem, lives: dict[int, tuple[int, int]]) -> dict[int, int]:
    """Return each backward operation's block, never rising.

    It is the last one in which all that the operation reads is there. One that stands before
    operations that need later blocks runs with them.
    """
    forward = problem.forward_count
    reads = [
        [lives[v] for v in operation.inputs if v in lives]
        for operation in problem.operations[forward:]
    ]
    needed = [0] * (len(reads) + 1)
    for t in range(len(reads) - 1, -1, -1):
        needed[t] = max([needed[t + 1], *(made for made, _ in reads[t])])
    places: dict[int, int] = {}
    current = max((last for _, last in lives.values()), default=0)
    for t, read in enumerate(reads):
        if read:
            own = max(max(made for made, _ in read), min(last for _, last in read))
            current = min(current, max(own, needed[t + 1]))
        places[forward + t] = current
    return places
