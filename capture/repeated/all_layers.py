"""The graph of all layers from that of a few: the second cycle again, under each other name.

What belongs to a layer is told by its name, which begins with the layer's path: operations, values,
looks at them, parameters and gradients. In each of these lists both cycles stand side by side,
forwards or backwards, and one has to be the other but for the index. What the second reads of the
first layers is theirs for all cycles, what it reads of the first cycle is the cycle before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeVar

from remat_gen.capture.repeated.repeated_layers import Repeated, UnlikeError
from remat_gen.ir import graph as ir

T = TypeVar("T")
_NAMES: Mapping[type, tuple[str, ...]] = {  # what of each is a name, or holds some
    ir.Input: ("tensor", "path"),
    ir.Operation: ("name", "args", "kwargs", "outputs", "module", "state"),
    ir.View: ("tensor", "base", "args", "kwargs"),
    ir.Tensor: ("name", "storage"),
    ir.Storage: ("name",),
    ir.Output: ("tensor", "tangent"),
    ir.Gradient: ("of", "tensor"),
    ir.Mutation: ("target", "tensor"),
}


def with_all_layers(graph: ir.Graph, lists: Iterable[Repeated]) -> ir.Graph:
    """Return the graph of a step of all layers, from one of a few of each list.

    Raises:
        UnlikeError: both cycles differ, or something else reads of them.
    """
    for repeated in lists:
        graph = _Unrolled(repeated, _Nodes.of(graph, repeated)).graph(graph)
    return ir.verify(graph)


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The nodes of autograd that the second cycle has for itself, and those of the first."""

    two: frozenset[int]
    one: frozenset[int]

    @classmethod
    def of(cls, graph: ir.Graph, repeated: Repeated) -> _Nodes:
        """Compare the numbers of both: what is common to them is one node of the whole step."""
        numbers = {o.name: o.node for o in graph.operations if o.node is not None}
        own = {name: node for name, node in numbers.items() if repeated.of(name) in repeated.one}
        pairs = [(node, numbers.get(repeated.later(name, 1))) for name, node in own.items()]
        apart = [(one, two) for one, two in pairs if two is not None and two != one]
        return cls(frozenset(two for _, two in apart), frozenset(one for one, _ in apart))

    def moved(self, node: int | None, by: int | None) -> Any:
        """Return what tells a node of the second cycle some cycles later; none `by` at an end.

        Raises:
            UnlikeError: an end has a part of a node of the cycles.
        """
        if by is None and (node in self.two or node in self.one):
            raise UnlikeError
        return (node, by) if node in self.two else node


@dataclass(frozen=True, slots=True)
class _Unrolled:
    """Makes the graph of all layers of one list."""

    repeated: Repeated
    nodes: _Nodes

    def graph(self, graph: ir.Graph) -> ir.Graph:
        """Return a graph in which the second cycle is there for all between the ends."""
        operations = self._all(graph.operations, lambda o: o.name)
        return replace(
            graph,
            inputs=self._all(graph.inputs, lambda i: i.tensor),
            operations=_numbered(operations),
            views=self._all(graph.views, lambda v: v.tensor),
            tensors={t.name: t for t in self._all(graph.tensors.values(), lambda t: t.name)},
            storages={s.name: s for s in self._all(graph.storages.values(), lambda s: s.name)},
            outputs=self._all(graph.outputs, lambda _: ""),
            gradients=self._all(graph.gradients, lambda g: g.of),
            mutations=self._all(graph.mutations, lambda m: m.target),
            layouts=dict(self._all(graph.layouts.items(), lambda named: named[0])),
        )

    def _all(self, items: Iterable[T], name: Callable[[T], str]) -> tuple[T, ...]:
        """Return a list of what all layers have, from that of a few."""
        runs = [(cycle, list(run)) for cycle, run in groupby(items, lambda i: self._cycle(name(i)))]
        found: list[T] = []
        while runs:
            cycle, run = runs.pop(0)
            if cycle is None:
                found += [self._at_an_end(item, self.repeated.of(name(item))) for item in run]
                continue
            other, after = runs.pop(0) if runs else (None, [])
            if {cycle, other} != {self.repeated.one, self.repeated.two}:
                raise UnlikeError
            found += self._on(run, after) if cycle == self.repeated.one else self._back(after, run)
        return tuple(found)

    def _cycle(self, name: str) -> range | None:
        """Return the cycle that something belongs to; None for an end, and for no layer."""
        layer = self.repeated.of(name)
        return next((c for c in (self.repeated.one, self.repeated.two) if layer in c), None)

    def _on(self, one: Sequence[T], two: Sequence[T]) -> list[T]:
        """Return the second cycle's as that of each between the ends.

        Raises:
            UnlikeError: the first cycle's is not the second's, one earlier.
        """
        cycles = [[self._later(i, by) for i in two] for by in range(-1, self.repeated.left_out + 1)]
        if list(map(_without_node, cycles[0])) != list(map(_without_node, one)):
            raise UnlikeError
        return [item for cycle in cycles for item in cycle]

    def _back(self, one: Sequence[T], two: Sequence[T]) -> list[T]:
        """Return the same of a list that goes from the last layer to the first."""
        found, size = self._on(one, two), len(two)
        return [x for at in range(len(found) - size, -1, -size) for x in found[at : at + size]]

    def _later(self, item: T, by: int) -> T:
        return self._moved(item, lambda name: self.repeated.later(name, by), by)

    def _at_an_end(self, item: T, layer: int | None) -> T:
        """Return what belongs to the first layers, the last ones, or to none.

        Raises:
            UnlikeError: it reads of a cycle that is not beside it: by its number, or as the last?
        """
        repeated = self.repeated
        near = range(0)
        if layer is not None:
            near = repeated.one if layer < repeated.first else repeated.two

        def moved(index: int) -> int:
            if index in (*repeated.one, *repeated.two) and index not in near:
                raise UnlikeError
            stays = index < repeated.two.start
            return index if stays else index + repeated.left_out * repeated.every

        return self._moved(item, lambda name: repeated.renamed(name, moved), None)

    def _moved(self, item: T, rename: Callable[[str], str], by: int | None) -> T:
        moved = renamed(item, rename)
        if isinstance(moved, ir.Operation):
            return replace(moved, node=self.nodes.moved(moved.node, by))
        return moved


def _numbered(operations: Iterable[ir.Operation]) -> tuple[ir.Operation, ...]:
    """Number the nodes of autograd from 0 on, in the order of the operations."""
    numbers: dict[object, int] = {}
    nodes = [
        o.node if o.node is None else numbers.setdefault(o.node, len(numbers)) for o in operations
    ]
    return tuple(replace(o, node=node) for o, node in zip(operations, nodes, strict=True))


def renamed(item: T, rename: Callable[[str], str]) -> T:
    """Rename what an item of a graph is called, and what it refers to."""
    found: Any = item
    if isinstance(found, tuple):  # a name and a layout
        found = rename(found[0]), found[1]
    else:
        names = _NAMES[type(item)]
        found = replace(found, **{n: _names(getattr(item, n), n, rename) for n in names})
    other: T = found
    return other


def _names(value: Any, of: str, rename: Callable[[str], str]) -> Any:
    if isinstance(value, ir.Ref):
        return ir.Ref(rename(value.name))
    if isinstance(value, tuple):
        return tuple(_names(part, of, rename) for part in value)
    is_name = isinstance(value, str) and of not in ("args", "kwargs")
    return rename(value) if is_name else value


def _without_node(item: T) -> T:
    return replace(item, node=None) if isinstance(item, ir.Operation) else item
