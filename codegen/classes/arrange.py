"""Blocks that do the same work are written once: group the bodies, then name what is in them.

Two bodies are the same if their statements are, up to the names of values, parameters and the
blocks that keep them, up to a few numbers, and up to bytes: stages of other widths read the same.
Names are then given to *roles*: the third value of a class is the same role in all of its
instances, and what one class keeps another reads under the same name.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import nn

from remat_gen.capture.fx.metadata import plain_name
from remat_gen.codegen.classes.last_readers import frees_of_others, gaps, with_frees
from remat_gen.codegen.classes.layer_numbers import handed, together, without_numbers
from remat_gen.codegen.classes.roles import Roles, kept_by_others, kept_marks
from remat_gen.codegen.expressions.marks import Mark, fill, find
from remat_gen.codegen.expressions.parameter_paths import access
from remat_gen.codegen.statements.free_names import HOST, free_name, kept_hint, turns_of
from remat_gen.codegen.statements.statements import Body, Function, Statement
from remat_gen.ir.errors import EmitError
from remat_gen.ir.graph import Graph, Input, Kind
from remat_gen.ir.paths import Layers

_OF_BLOCKS = frozenset(
    "at backward borrowed constant forward forward_only parameters turns".split()
)


@dataclass(frozen=True, slots=True, eq=False)
class BlockClass:
    """Bodies that read the same; the first one stands for all.

    `numbers` are handed to them, by name: what each body's block gets, in order.
    """

    bodies: tuple[Body, ...]
    fixed: frozenset[Mark] = frozenset()  # is in one block for all; the rest is found by distance
    numbers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def body(self) -> Body:
        """Return the body that is written."""
        return self.bodies[0]


def group(graph: Graph, bodies: tuple[Body, ...], model: nn.Module) -> tuple[BlockClass, ...]:
    """Group equal bodies, in order of their first block."""
    inputs = {i.tensor: i for i in graph.inputs}
    by_key: dict[object, list[Body]] = {}
    for body in bodies:
        by_key.setdefault(_key(body, inputs, graph.layers, model), []).append(body)
    same = [bodies for alike in by_key.values() for bodies in together(alike)]
    classes = [c for bodies in same for c in _split_by_owners(bodies)]
    in_order = sorted(classes, key=lambda c: c.body.block)
    split = sorted(_split_by_roles(in_order), key=lambda c: c.body.block)
    taken = {length.name for length in graph.lengths}
    return tuple(_with_numbers(block_class, taken) for block_class in split)


def _with_numbers(block_class: BlockClass, taken: set[str]) -> BlockClass:
    bodies, numbers = handed(with_frees(block_class.bodies), taken)
    return replace(block_class, bodies=bodies, numbers=numbers)


def _key(body: Body, inputs: Mapping[str, Input], layers: Layers, model: nn.Module) -> object:
    numbers: dict[Mark, int] = {}

    def canonical(mark: Mark) -> str:
        if mark.kind in ("length", "compiled"):
            return str(mark)
        number = numbers.setdefault(mark, len(numbers))
        return f"<{mark.kind} {int(mark.owner == body.block)} {number}>"

    def line(s: Statement) -> object:
        text = without_numbers(fill(s.text, canonical))
        return text, s.verb if s.text else "", s.source, fill(s.again, canonical)

    def of(function: Function) -> object:
        return (
            tuple(line(s) for s in function.statements if s.text),
            tuple(fill(text, canonical) for text in function.returns.values()),
        )

    texts = of(body.forward), of(body.backward)
    foreign = frees_of_others(body)
    frees = tuple(
        tuple(canonical(mark) for mark, _ in gap if mark not in foreign)
        for function in (body.forward, body.backward)
        for gap in gaps(function)
    )
    arguments = tuple(inputs[name] for name in body.arguments())
    reached = tuple(_reached(i, layers, model) for i in arguments)
    models = [i.path for i in arguments if i.kind is not Kind.INPUT]
    holding = layers.all_holding(models)
    which = tuple(holding.index(layers.holding(path)) for path in models)
    positions = tuple(list(body.arguments()).index(name) for name in body.backward.returns)
    only_read = tuple(name in body.only_read for name in body.arguments())
    returns = tuple(body.forward.returns)
    return texts, frees, reached, which, positions, returns, body.tangents, only_read


def _reached(argument: Input, layers: Layers, model: nn.Module) -> tuple[bool, str]:
    """Return whether an argument is the call's, and how it is reached there or from its layer."""
    if argument.kind is Kind.INPUT:
        return True, argument.path
    layer = model.get_submodule(layers.holding(argument.path))
    return False, access("layer", layer, layers.relative(argument.path))


def _split_by_roles(classes: Iterable[BlockClass]) -> Iterator[BlockClass]:
    """Take bodies apart whose values cannot have one name for each role."""
    roles = Roles()
    for block_class in classes:
        rest = list(block_class.bodies)
        while rest:
            first = rest[0]
            same = [body for body in rest if body is first or roles.unite(first, body)]
            yield BlockClass(tuple(same), block_class.fixed)
            rest = [body for body in rest if body not in same]


def _split_by_owners(bodies: list[Body]) -> list[BlockClass]:
    """Tell how the other blocks are reached: each at the same distance, or always the same one.

    A decoder's layers read the layer before them, and all of them the first block's rotations.
    """
    columns = zip(*map(_owners, bodies), strict=True)
    blocks = [body.block for body in bodies]
    keys = list(zip(*(_nearer(column, blocks) for column in columns), strict=True)) or [()] * len(
        bodies
    )
    alike: dict[tuple[int, ...], list[Body]] = {}
    for key, body in zip(keys, bodies, strict=True):
        alike.setdefault(key, []).append(body)
    return [BlockClass(tuple(same), _fixed(same)) for same in alike.values()]


def _nearer(owners: Sequence[int], blocks: Sequence[int]) -> list[int]:
    """Return by what bodies are told apart: distances, or the blocks themselves if fewer."""
    distances = [owner - block for owner, block in zip(owners, blocks, strict=True)]
    return list(owners) if len(set(owners)) < len(set(distances)) else distances


def _fixed(bodies: Sequence[Body]) -> frozenset[Mark]:
    """Return what of the first body each of them finds in one and the same block."""
    columns = zip(*map(_owners, bodies), strict=True)
    return frozenset(
        mark
        for mark, column in zip(kept_by_others(bodies[0]), columns, strict=True)
        if len({owner - body.block for owner, body in zip(column, bodies, strict=True)}) > 1
    )


def _owners(body: Body) -> list[int]:
    return [mark.owner for mark in kept_by_others(body)]


@dataclass(slots=True)
class KeptNames:
    """Attribute names of what blocks keep: one for all values that play the same role."""

    graph: Graph
    classes: tuple[BlockClass, ...]
    roles: Roles = field(default_factory=Roles)
    names: dict[str, str] = field(default_factory=dict)
    made_by: dict[str, str] = field(default_factory=dict)  # the kind of operation, by storage

    def __post_init__(self) -> None:
        for operation in self.graph.operations:
            kind = plain_name(operation.target.split(".")[1])
            for output in filter(None, operation.outputs[:1]):
                self.made_by.setdefault(self.graph.tensors[output].storage, kind)
        owners: dict[str, int] = {}
        for block_class in self.classes:
            for body in block_class.bodies:
                marks = kept_marks(body)
                owners.update((mark.name, mark.owner) for mark in marks)
                self.roles.add(marks)
                if not self.roles.unite(block_class.body, body):
                    raise EmitError(f"blocks {block_class.body.block} and {body.block} differ")
        self._assign(owners)

    def _sent(self) -> set[str]:
        """Return the roles of what is sent to the host: their copies have names, too."""
        bodies = (body for c in self.classes for body in c.bodies)
        sent = (s for body in bodies for s in body.forward.statements if s.sent)
        return {self.roles.of(find(s.text)[0].name) for s in sent}

    def __getitem__(self, storage: str) -> str:
        return self.names[self.roles.of(storage)]

    def _assign(self, owners: dict[str, int]) -> None:
        members: dict[str, list[str]] = {}
        for name in owners:
            members.setdefault(self.roles.of(name), []).append(name)
        bodies = [body for c in self.classes for body in c.bodies]
        read = (m.name for b in bodies for m in kept_marks(b) if m.owner != b.block)
        handed_on = set(map(self.roles.of, read))
        taken: dict[int, set[str]] = {}
        sending = self._sent()
        turns = {b.block: turns_of(b, self.graph.layers) for b in bodies}
        # what other blocks read is named first: `x` is what layers hand on, `x_relu` their own
        for role, storages in sorted(members.items(), key=lambda found: found[0] not in handed_on):
            blocks = {owners[s] for s in storages}
            used = {*keyword.kwlist, *_OF_BLOCKS, *(length.name for length in self.graph.lengths)}
            used.update(name for c in self.classes for name in c.numbers)
            used = used.union(*(taken.get(b, set()) for b in blocks))
            first, hint = storages[0], kept_hint(self.graph, storages[-1])
            turn, kind = turns[owners[first]], self.made_by.get(first, "")
            sent = role in sending
            used.update(n.removesuffix(HOST) for n in tuple(used) if sent and n.endswith(HOST))
            name = free_name(self.graph.layers, hint, first, used, turn, kind)
            self.names[role] = name
            for block in blocks:
                taken.setdefault(block, set()).update((name, name + HOST) if sent else (name,))
