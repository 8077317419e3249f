"""Blocks that do the same work are written once: group the bodies, then name what is in them.

Two bodies are the same if their statements are, up to the names of values, parameters and the
blocks that keep them, up to a few numbers, and up to bytes: stages of other widths read the same.
Those that differ in a few lines alone are one class, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from torch import nn

from remat_gen.codegen.classes.layer_numbers import handed, together, without_numbers
from remat_gen.codegen.classes.own_views import DiffersError
from remat_gen.codegen.classes.roles import Roles, kept_by_others, kept_marks
from remat_gen.codegen.classes.variants import MOST_PARTNERS, Owners, as_one, is_partner, owners_of
from remat_gen.codegen.expressions.marks import IN_ALL, Mark, fill
from remat_gen.codegen.expressions.parameter_paths import access
from remat_gen.codegen.statements.kept_outputs import returned
from remat_gen.codegen.statements.statements import Body, Function, Statement
from remat_gen.ir.graph import Graph, Input, Kind
from remat_gen.ir.paths import Layers


@dataclass(frozen=True, slots=True, eq=False)
class BlockClass:
    """Bodies that read the same; the first one stands for all.

    `numbers` are handed to them, by name: what each body's block gets, in order. Other blocks are
    found by distance, but for the `owners` of some values; `partners` are the names of those.
    """

    bodies: tuple[Body, ...]
    owners: Owners = field(default_factory=Owners)
    numbers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    partners: Mapping[Mark, str] = field(default_factory=dict)

    @property
    def body(self) -> Body:
        """Return the body that is written."""
        return self.bodies[0]


def group(graph: Graph, bodies: tuple[Body, ...], model: nn.Module) -> tuple[BlockClass, ...]:
    """Group equal bodies, in order of their first block."""
    inputs = {i.tensor: i for i in graph.inputs}
    by_key: dict[object, list[Body]] = {}
    for body in bodies:
        by_key.setdefault(_key(body, graph, inputs, model), []).append(body)
    same = [bodies for alike in by_key.values() for bodies in together(alike)]
    classes = [c for bodies in same for c in _split_by_owners(bodies)]
    in_order = sorted(classes, key=lambda c: c.body.block)
    split = sorted(_split_by_roles(in_order), key=lambda c: c.body.block)
    joining = _Joining(graph, lambda body: _given(body, graph, inputs, model))
    taken = {length.name for length in graph.lengths}
    return tuple(_with_numbers(block_class, taken) for block_class in joining.joined(split))


def _with_numbers(block_class: BlockClass, taken: set[str]) -> BlockClass:
    columns = sorted({*block_class.owners.partners.values()})
    names = dict(zip(columns, ("partner", "partner_2"), strict=False))
    bodies, numbers = handed(block_class.bodies, {*taken, *names.values()})
    numbers |= {name: column for column, name in names.items()}
    partners = {mark: names[column] for mark, column in block_class.owners.partners.items()}
    return replace(block_class, bodies=bodies, numbers=numbers, partners=partners)


def _key(body: Body, graph: Graph, inputs: Mapping[str, Input], model: nn.Module) -> object:
    numbers: dict[Mark, int] = {}

    def canonical(mark: Mark) -> str:
        if mark.kind in IN_ALL:
            return str(mark)
        number = numbers.setdefault(mark, len(numbers))
        return f"<{mark.kind} {int(mark.owner == body.block)} {number}>"

    def line(s: Statement) -> object:
        text = without_numbers(fill(s.text, canonical))
        frees = tuple(canonical(mark) for mark, _ in s.frees)
        return text, s.does, s.source, fill(s.again, canonical), frees

    def of(function: Function) -> object:
        lines = tuple(map(line, function.statements))
        return lines, tuple(fill(text, canonical) for text in function.returns.values())

    texts = of(body.forward), of(body.backward)
    return texts, _given(body, graph, inputs, model)


def _given(body: Body, graph: Graph, inputs: Mapping[str, Input], model: nn.Module) -> object:
    """Return how a body reaches what it is given and keeps, and where its gradients go."""
    arguments, layers = tuple(inputs[name] for name in body.arguments()), graph.layers
    reached = tuple(_reached(i, layers, model) for i in arguments)
    outputs = returned(graph, body.forward.returns)
    models = [i.path for i in arguments if i.kind is not Kind.INPUT]
    models += [output.kept for output in outputs if output.kept]
    holding = layers.all_holding(models)
    which = tuple(holding.index(layers.holding(path)) for path in models)
    positions = tuple(list(body.arguments()).index(name) for name in body.backward.returns)
    only_read = tuple(name in body.only_read for name in body.arguments())
    returns = tuple(
        (layers.relative(o.kept), o.requires_grad, bool(o.tangent)) if o.kept else o
        for o in outputs
    )
    return reached, which, positions, returns, only_read


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
            yield from _with_owners(same)
            rest = [body for body in rest if body not in same]


@dataclass(slots=True)
class _Joining:
    """Makes one class of those that differ in a few lines; `given` says how arguments come."""

    graph: Graph
    given: Callable[[Body], object]
    roles: Roles = field(default_factory=Roles)

    def joined(self, classes: Iterable[BlockClass]) -> list[BlockClass]:
        """Return the classes, each in one with the first that it differs so little from."""
        found: dict[object, list[BlockClass]] = {}
        for block_class in classes:
            for body in block_class.bodies:
                self.roles.add(kept_marks(body))
            self.roles.unite(*block_class.bodies)
            alike = found.setdefault(_outline(block_class.body), [])
            tried = enumerate(self._one(other, block_class) for other in alike)
            place, one = next(((i, one) for i, one in tried if one), (len(alike), block_class))
            alike[place : place + 1] = [one]
        return sorted(chain(*found.values()), key=lambda c: c.body.block)

    def _one(self, ours: BlockClass, theirs: BlockClass) -> BlockClass | None:
        try:
            fixed = ours.owners.fixed | theirs.owners.fixed
            bodies = as_one(self.graph, ours.bodies, theirs.bodies, fixed)
            in_order = sorted(bodies, key=lambda body: body.block)
            owners = owners_of(in_order)
        except DiffersError:
            return None
        first, other = bodies[0], bodies[len(ours.bodies)]
        if self.given(first) != self.given(other) or len(together(bodies)) > 1:
            return None
        if not self.roles.unite(*in_order):
            return None
        return BlockClass(tuple(in_order), owners)


def _outline(body: Body) -> object:
    """Return what bodies have alike that could be one: the rest takes longer to compare."""
    returns = len(body.forward.returns), len(body.backward.returns), len(body.tangents)
    return len(body.arguments()), returns, tuple(map(len, body.backward.turns))


def _split_by_owners(bodies: list[Body]) -> list[BlockClass]:
    """Tell how the other blocks are reached: at the same distance, always the same, each its own.

    A decoder's layers read the layer before them, and all of them the first block's rotations. Each
    of a U-Net's upper blocks reads the lower one of its size, each turn of a layer's recurrence
    what the layer made before the first.
    """
    blocks = [body.block for body in bodies]
    columns = [*zip(*map(_owners, bodies), strict=True)]
    partners = {column for column in columns if is_partner(column, blocks)}
    if len(partners) <= MOST_PARTNERS:
        columns = [column for column in columns if column not in partners]
    alike = _apart(bodies, [_nearer(column, blocks) for column in columns])
    return [c for same in alike for c in _with_owners(same)]


def _with_owners(bodies: list[Body]) -> list[BlockClass]:
    """Return a class of bodies; of some of those that have partners it may be several."""
    try:
        return [BlockClass(tuple(bodies), owners_of(bodies))]
    except DiffersError:
        blocks = [body.block for body in bodies]
        columns = [_nearer(column, blocks) for column in zip(*map(_owners, bodies), strict=True)]
        return [BlockClass(tuple(s), owners_of(s)) for s in _apart(bodies, columns)]


def _apart(bodies: list[Body], columns: Sequence[Sequence[int]]) -> list[list[Body]]:
    """Return together the bodies that have the same in each column."""
    alike: dict[tuple[int, ...], list[Body]] = {}
    for i, body in enumerate(bodies):
        alike.setdefault(tuple(column[i] for column in columns), []).append(body)
    return list(alike.values())


def _nearer(owners: Sequence[int], blocks: Sequence[int]) -> tuple[int, ...]:
    """Return by what bodies are told apart: distances, or the blocks themselves if fewer."""
    distances = tuple(owner - block for owner, block in zip(owners, blocks, strict=True))
    return tuple(owners) if len({*owners}) < len({*distances}) else distances


def _owners(body: Body) -> list[int]:
    return [mark.owner for mark in kept_by_others(body)]
