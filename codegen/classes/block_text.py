"""A class of blocks as text: everything the template prints, decided and named."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from remat_gen.codegen.classes.arrange import BlockClass
from remat_gen.codegen.classes.block_parameters import word_list
from remat_gen.codegen.classes.kept_names import KeptNames
from remat_gen.codegen.classes.paragraphs import WIDTH, Paragraph, paragraphs
from remat_gen.codegen.classes.reused_names import reused_names
from remat_gen.codegen.expressions.marks import Mark, assigned, fill, find, written
from remat_gen.codegen.expressions.prose import prose
from remat_gen.codegen.statements.free_names import free_name, hint_of, turns_of
from remat_gen.codegen.statements.kept_outputs import returned
from remat_gen.codegen.statements.statements import Function, Statement
from remat_gen.ir.graph import Graph, Input, Kind
from remat_gen.ir.size import lengths_in

_ROLES = frozenset("mean rstd invstd mask indices weight logsumexp".split())
RESERVED = frozenset("_ self step p g before after aten torch F nn Any Tensor math".split())


@dataclass(frozen=True, slots=True)
class BlockText:
    """A block class for the template."""

    name: str
    title: str
    summary: str
    frame_forward: tuple[str, ...]
    frame_backward: tuple[str, ...]
    forward: tuple[Paragraph, ...]
    backward: tuple[Paragraph, ...]
    outputs: tuple[str, ...]
    tangents: tuple[str, ...]
    unplanned: tuple[str, ...]
    gradients: tuple[str, ...]
    turns: tuple[str, ...]


@dataclass(slots=True)
class Writer:
    """Names the marks of one class and fills them in."""

    graph: Graph
    block_class: BlockClass
    kept_names: KeptNames
    global_names: frozenset[str] = frozenset()  # of this file, that its functions call
    functions: Mapping[str, str] = field(default_factory=dict)  # names of what is compiled
    names: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=lambda: {*RESERVED, *keyword.kwlist, *dir(builtins)})
    inputs: Mapping[str, Input] = field(init=False)
    turns: Mapping[str, str] = field(init=False)
    gradient_of: Mapping[str, str] = field(init=False)  # the argument, by what is its gradient
    owners: frozenset[str] = field(init=False)  # names of blocks that are there for all blocks

    def __post_init__(self) -> None:
        self.turns = turns_of(self.block_class.body, self.graph.layers)
        self.inputs = {i.tensor: i for i in self.graph.inputs}
        body = self.block_class.body
        self.taken.update(self.global_names)
        self.owners = frozenset(map(self._owner_name, self._read_by_all()))
        self.taken.update(self.owners)
        for name in dict.fromkeys((*lengths_of(body.forward), *self._lengths_in_backward())):
            self.lengths[name] = free_name(self.graph.layers, name, name, self.taken)
            self.taken.add(self.lengths[name])
        given = {*keyword.kwlist, *self.block_class.numbers}
        for name in body.arguments():
            self._name(name, given)
        returned = {text: argument for argument, text in body.backward.returns.items()}
        marks = {m.name: str(m) for m in body.backward.marks() if m.kind == "value"}
        self.gradient_of = {s: returned[text] for s, text in marks.items() if text in returned}
        for name in body.tangents:
            self._name(name, self.taken)
        reused = reused_names(self.graph, body)
        for mark in (*body.forward.marks(), *body.backward.marks()):
            if mark.kind in ("value", "tangent") and mark.name not in self.gradient_of:
                first = reused.get(mark.name, mark.name)
                self._name(first, self.taken)
                self.names[mark.name] = self.names[first]

    def write(self, name: str, title: str) -> BlockText:
        """Return the text of the class."""
        body = self.block_class.body
        left = {m.name for m in body.backward.marks() if m.kind == "leaving"}.union(
            *body.backward.turns
        )
        return BlockText(
            name=name,
            title=title,
            summary=prose(self._summary()),
            frame_forward=self._frame(body.forward, lengths_of(body.forward)),
            frame_backward=self._frame(body.backward, self._lengths_in_backward()),
            forward=self._paragraphs([b.forward for b in self.block_class.bodies]),
            backward=self._paragraphs([b.backward for b in self.block_class.bodies]),
            outputs=tuple(map(self.fill, body.forward.returns.values())),
            tangents=self._incoming(),
            unplanned=tuple(n for n in self._incoming() if n.startswith("d_unplanned")),
            gradients=tuple(
                f"g.{self.names[argument]} = {self.fill(text)}"
                for argument, text in body.backward.returns.items()
                if argument not in self.gradient_of.values() and argument not in left
            ),
            turns=tuple(
                word_list([self.names[argument] for argument in turn])
                for turn in body.backward.turns
            ),
        )

    def fill(self, text: str) -> str:
        """Replace the marks in a text by names."""
        return fill(text, self._spell)

    def retained(self) -> list[str]:
        """Return the names of what the class keeps until backward, the largest first."""
        forwards = (body.forward.statements for body in self.block_class.bodies)
        rows = (row for row in zip(*forwards, strict=True) if any(s.retained for s in row))
        marks = [mark for first, *_ in rows for mark in _targets(first)]
        kept = sorted(
            (m.name for m in marks if m.kind == "kept"),
            key=lambda name: -self.graph.storages[name].nbytes,
        )
        return without_companions(self.kept_names[name] for name in kept)

    def rematerialised(self) -> list[str]:
        """Return the names of what the class's backward runs again."""
        names = [
            part.rpartition(".")[2]
            for s in self.block_class.body.backward.statements
            if s.again
            for part in self.fill(s.again).split(", ")
        ]
        return without_companions(names)

    def offloaded(self) -> list[str]:
        """Return the names of what the class's forward sends to the host."""
        sent = [s for s in self.block_class.body.forward.statements if s.sent]
        return without_companions(self.kept_names[find(s.text)[0].name] for s in sent)

    def _summary(self) -> str:
        retained, again = len(self.retained()), len(self.rematerialised())
        more = f", re-runs {again}" if again else ""
        sent = len(self.offloaded())
        more += f", sends {sent} to the host" if sent else ""
        return f"Retains {retained} value{'s' * (retained != 1)}{more}."

    def _incoming(self) -> tuple[str, ...]:
        """Return backward's arguments: one per output."""
        return tuple(
            self.names[output.tangent] if output.tangent else f"d_unplanned_{place}"
            for place, output in enumerate(
                returned(self.graph, self.block_class.body.forward.returns)
            )
        )

    def _name(self, name: str, taken: set[str]) -> None:
        if name in self.names:
            return
        hint = hint_of(self.graph, name)
        if name in self.inputs and self.inputs[name].kind is Kind.INPUT:
            hint = self.graph.tensors[name].hint
        self.names[name] = free_name(self.graph.layers, hint, name, taken, self.turns)
        taken.add(self.names[name])

    def layout(self, tangent: str) -> tuple[str, str]:
        """Return the shape and the strides of an incoming gradient."""
        tensor, layout = self.graph.tensors[tangent], self.graph.layouts.get(tangent)
        if layout is None:
            return str(list(tensor.shape)), str(list(tensor.stride))
        shape, stride = (
            self.fill(f"[{', '.join(map(written, sizes))}]")
            for sizes in (layout.shape, layout.stride)
        )
        return shape, stride

    def _lengths_in_backward(self) -> tuple[str, ...]:
        """Return the lengths that backward needs, also to check the incoming gradients."""
        body = self.block_class.body
        layouts = (self.graph.layouts.get(t) for t in body.tangents)
        sizes = tuple(n for layout in layouts if layout for n in (*layout.shape, *layout.stride))
        return tuple(dict.fromkeys((*lengths_of(body.backward), *lengths_in(sizes))))

    def _spell(self, mark: Mark) -> str:
        if mark.kind == "length":
            return self.lengths[mark.name]
        if mark.kind == "number":
            return f"self.{mark.name}"
        if mark.kind == "compiled":
            return self.functions[mark.name]
        if mark.kind == "leaving":
            return f"g.{self.names[mark.name]}"
        if mark.kind == "argument":
            return f"p.{self.names[mark.name]}"
        if mark.kind != "kept":
            gradient = self.gradient_of.get(mark.name)
            return f"g.{self.names[gradient]}" if gradient else self.names[mark.name]
        return f"{self._owner(mark)}.{self.kept_names[mark.name]}"

    def _owner(self, mark: Mark) -> str:
        """Write the block that keeps what a mark stands for."""
        if mark.owner == self.block_class.body.block:
            return "self"
        name = self._owner_name(mark)
        return name if name in self.owners else self._place(mark)

    def _owner_name(self, mark: Mark) -> str:
        """Name the block that keeps what a mark stands for."""
        if mark in self.block_class.partners:
            return self.block_class.partners[mark]
        if mark in self.block_class.owners.fixed:
            return f"block_{mark.owner}"
        distance = mark.owner - self.block_class.body.block
        name = "before" if distance < 0 else "after"
        return name if abs(distance) == 1 else f"{name}_{abs(distance)}"

    def _read_by_all(self) -> Iterator[Mark]:
        """Yield what each block of the class finds in others, not some of them alone."""
        body, owners = self.block_class.body, self.block_class.owners
        for function in (body.forward, body.backward):
            of_all = {m for s in function.statements if not s.blocks for m in s.marks()}
            of_all |= {m for text in function.returns.values() for m in find(text)} | owners.fixed
            yield from (m for m in of_all if m.kind == "kept" and m.owner != body.block)

    def _frame(self, function: Function, lengths: tuple[str, ...]) -> tuple[str, ...]:
        """Write what finds other blocks and lengths, in one line if it fits."""
        block = self.block_class.body.block
        others = [m for m in function.marks() if m.kind == "kept" and m.owner != block]
        named = [mark for mark in others if self._owner_name(mark) in self.owners]
        found = {self._owner_name(mark): self._place(mark) for mark in named}
        found |= {self.lengths[name]: f"self.{name}" for name in lengths}
        line = f"{', '.join(found)} = {', '.join(found.values())}"
        if len(line) <= WIDTH:
            return (line,) if found else ()
        return tuple(f"{name} = {value}" for name, value in found.items())

    def _place(self, mark: Mark) -> str:
        if mark in self.block_class.partners:
            return f"step[self.{self.block_class.partners[mark]}]"
        if mark in self.block_class.owners.fixed:
            return f"step[{mark.owner}]"
        distance = mark.owner - self.block_class.body.block
        return f"step[self.at {'-' if distance < 0 else '+'} {abs(distance)}]"

    def _paragraphs(self, functions: list[Function]) -> tuple[Paragraph, ...]:
        return tuple(paragraphs([f.statements for f in functions], self.fill))


def lengths_of(function: Function) -> tuple[str, ...]:
    """Return the lengths that a function needs, each once."""
    return tuple(dict.fromkeys(m.name for m in function.marks() if m.kind == "length"))


def without_companions(names: Iterable[str]) -> list[str]:
    """Return names, each once; where `ln_1` is there, `ln_1_mean` goes without saying."""
    listed = dict.fromkeys(names)
    split = (name.rpartition("_") for name in listed)
    return [
        f"{base}{dash}{last}"
        for base, dash, last in split
        if last not in _ROLES or base not in listed
    ]


def _targets(statement: Statement) -> Sequence[Mark]:
    return find(statement.keeps or assigned(statement.text))
