"""What a function gives away: the model's outputs, and the gradients of parameters and inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from remat_gen.codegen.expressions.expressions import Expressions
from remat_gen.codegen.expressions.marks import find, leaving
from remat_gen.codegen.statements.free_names import VERSION
from remat_gen.codegen.statements.gradient_reach import partly_reached
from remat_gen.codegen.statements.moments import Now
from remat_gen.codegen.statements.statements import Statement
from remat_gen.ir.graph import Gradient, Graph, Kind, Output
from remat_gen.solver.law.problem import Problem


@dataclass(slots=True)
class Leaving:
    """Writes what leaves the function at hand: `returns`, and the `turns` before its end."""

    graph: Graph
    problem: Problem
    now: Now
    expressions: Expressions
    returns: dict[str, str] = field(default_factory=dict)
    turns: list[tuple[str, ...]] = field(default_factory=list)
    _places: dict[int, tuple[int, int]] = field(default_factory=dict)  # block, place among its own
    _partly: dict[str, tuple[int, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self._partly = partly_reached(self.graph)

    def begin(self) -> None:
        """Begin another function."""
        self.returns, self.turns = {}, []

    def outputs(self, block: int) -> Iterator[Statement]:
        """Let a block's outputs go; yield what is to be known of those that backward reads."""
        read_later = self.now.outputs_read_in_backward()
        left: set[Output] = set()
        leaving_of = Counter(
            self.graph.storage_of(name).name
            for name in dict.fromkeys(output.tensor for output in self.graph.outputs)
            if name
        )
        for i, output in enumerate(self.graph.outputs):
            if output.tensor is None or output in left:
                continue
            if self.graph.storage_of(output.tensor).kind.outside:
                continue
            if self.now.leaving_block(self.graph.storage_of(output.tensor).name) != block:
                continue
            left.add(output)
            self._places[i] = block, len(self.returns)
            storage = self.graph.storage_of(output.tensor).name
            kept = self.now.index[storage] in read_later
            text = self.expressions.output(output.tensor, shared=kept or leaving_of[storage] > 1)
            mark = self.now.place(storage)
            if (mark.kind == "kept" and text == str(mark)) or text in self.returns.values():
                # what is kept must not get a history, or it would hold its own graph; and what
                # eager returns detached beside its original is a tensor of its own
                text += ".detach()"
            self.returns[str(i)] = text
            if kept:
                yield Statement(f"{mark}{VERSION} = {mark}._version")

    def rest(self, segment: int) -> Iterator[Statement]:
        """Let all gradients go that leave as a segment ends; yield what hands over kept ones."""
        copied: set[str] = set()  # storages that leave as a gradient already
        for gradient, tensor in self._waiting():
            storage = self.graph.storage_of(tensor)
            if self.now.leaves_in(storage.name, segment):
                text = self.expressions.tensor(tensor)
                if storage.name in copied or storage.kind is not Kind.GRADIENT:
                    text += ".clone()"  # two parameters must not share one gradient
                copied.add(storage.name)
                self.returns[gradient.of] = text + self._if_it_came(gradient, segment)
                if self.now.index.get(storage.name) in self.now.lifetimes.waits:  # freed behind it
                    yield Statement(f"{leaving(gradient.of)} = {self.returns[gradient.of]}")

    def hand_over(self, gradients: Collection[int], segment: int) -> Iterator[Statement]:
        """Let autograd have gradients of parameters, by their values: both are read no more."""
        handed, turn = 0, list[str]()
        for gradient, tensor in self._waiting():
            v = self.now.index.get(self.graph.storage_of(tensor).name, -1)
            if v not in gradients:
                continue
            text = self.expressions.tensor(tensor) + self._if_it_came(gradient, segment)
            self.returns[gradient.of] = text
            turn.append(gradient.of)
            handed += self.problem.values[v].nbytes
            if [text] != [str(mark) for mark in find(text) if mark.kind == "value"]:
                yield Statement(f"{leaving(gradient.of)} = {text}")
        self.turns.append(tuple(turn))
        yield Statement("yield", handed=handed)

    def _waiting(self) -> Iterator[tuple[Gradient, str]]:
        """Yield the gradients that have not left, and what each is."""
        for gradient in self.graph.gradients:
            if gradient.tensor is not None and gradient.of not in self.returns:
                yield gradient, gradient.tensor

    def _if_it_came(self, gradient: Gradient, segment: int) -> str:
        came = [self.came(i, segment) for i in self._partly.get(gradient.of, ())]
        return f" if {' or '.join(came)} else None" if came else ""

    def came(self, output: int, segment: int) -> str:
        """Write in backward whether a gradient came into an output."""
        block, place = self._places[output]
        last = self.now.schedule.block_count - 1
        own = 2 * last + 1 - segment
        if block == own:
            return f"self.came[{place}]"
        return f"step[{'-1' if block == last else f'self.at + {block - own}'}].came[{place}]"
