"""Give back what is added up to an input's gradient one by one, as eager's own nodes would.

Where something outside of a unit reads its input as well, autograd adds the unit's gradient to what
has come from there: (a + b) + c. A unit that added up its own first, a + (b + c), would be off in
the last bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch.utils import _pytree as pytree

from remat_gen.capture.observe.gradient_graph import nodes_behind
from remat_gen.ir.graph import (
    Gradient,
    Graph,
    Input,
    Kind,
    Operation,
    Phase,
    Ref,
    Storage,
)

_ADD = "aten.add.Tensor"
_SUMMANDS = (Kind.GRADIENT, Kind.TANGENT)


def sums_apart(graph: Graph, most: Mapping[str, int]) -> Graph:
    """Return a graph with a gradient for each summand of some inputs' gradients.

    `most` has for each input how many autograd adds up: a sum of more was added up elsewhere,
    behind `x + 1` it is one before it is x's. An input then stands once more for each summand,
    behind itself: nobody reads it there.
    """
    found = _Sums.of(graph)
    parts = {
        gradient.of: found.summands(gradient.tensor, most[gradient.of])
        for gradient in graph.gradients
        if gradient.tensor and gradient.of in most
    }
    for name, summands in parts.items():
        graph = _apart(graph, name, summands)
    return _without(graph, found.added)


def later_summands(graph: Graph) -> frozenset[str]:
    """Return the gradients that are not the first of their input."""
    paths = {i.tensor: (i.kind, i.path) for i in graph.inputs}
    seen, later = set(), set()
    for gradient in graph.gradients:
        if gradient.tensor and paths[gradient.of] in seen:
            later.add(gradient.tensor)
        seen.add(paths[gradient.of])
    return frozenset(later)


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums that nobody reads but autograd, or another such sum; `added` are those taken apart."""

    graph: Graph
    makers: Mapping[str, Operation]
    readers: Mapping[str, int]
    added: set[str]

    @classmethod
    def of(cls, graph: Graph) -> _Sums:
        made = {name: o for o in graph.operations for name in o.outputs if name}
        read = Counter(s for o in graph.operations for s in graph.reads(o))
        return cls(graph, made, read, set())

    def summands(self, tensor: str, most: int, readers: int = 0) -> list[str]:
        """Return what a tensor is the sum of, in the order in which it was added up: at `most`."""
        operation, storage = self.makers.get(tensor), self.graph.tensors[tensor].storage
        if most < 2 or operation is None or self.readers.get(storage, 0) != readers:
            return [tensor]
        if operation.target != _ADD or operation.kwargs or operation.phase is not Phase.BACKWARD:
            return [tensor]
        left, right = operation.args
        if not (self._alike(left, tensor) and self._alike(right, tensor)):
            return [tensor]
        assert isinstance(left, Ref) and isinstance(right, Ref)
        if self.graph.storage_of(right.name).kind is not Kind.GRADIENT:
            return [tensor]
        self.added.add(operation.name)
        return [*self.summands(left.name, most - 1, readers=1), right.name]

    def _alike(self, summand: object, of: str) -> bool:
        if not isinstance(summand, Ref):
            return False
        one, other = self.graph.tensors[summand.name], self.graph.tensors[of]
        same = (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)
        return same and self.graph.storage_of(summand.name).kind in _SUMMANDS


def _apart(graph: Graph, of: str, summands: list[str]) -> Graph:
    """Put the summands in place of an input's gradient."""
    (given,) = (i for i in graph.inputs if i.tensor == of)
    names = [of, *(f"{of}:{number}" for number in range(2, len(summands) + 1))]
    inputs: list[Input] = []
    for one in graph.inputs:
        more = names[1:] if one is given else []
        inputs += [one, *(replace(given, tensor=name) for name in more)]
    gradients: list[Gradient] = []
    for gradient in graph.gradients:
        pairs = zip(names, summands, strict=True)
        gradients += [Gradient(*pair) for pair in pairs] if gradient.of == of else [gradient]
    tensor, storage, more = graph.tensors[of], graph.storage_of(of), names[1:]
    layouts = {name: graph.layouts[of] for name in more if of in graph.layouts}
    own = {name: Storage(name, storage.nbytes, given.kind) for name in more}
    return replace(
        graph,
        inputs=tuple(inputs),
        gradients=tuple(gradients),
        tensors={**graph.tensors, **{n: replace(tensor, name=n, storage=n) for n in more}},
        storages={**graph.storages, **own},
        layouts={**graph.layouts, **layouts},
    )


def _without(graph: Graph, added: Collection[str]) -> Graph:
    gone = {name for o in graph.operations if o.name in added for name in o.outputs if name}
    storages = {graph.tensors[name].storage for name in gone}
    return replace(
        graph,
        operations=tuple(o for o in graph.operations if o.name not in added),
        tensors={name: t for name, t in graph.tensors.items() if name not in gone},
        storages={name: s for name, s in graph.storages.items() if name not in storages},
        layouts={name: at for name, at in graph.layouts.items() if name not in gone},
    )


# -- what else reads an input --------------------------------------------------------------

LOSS = "loss"  # among nodes: never a unit's own
Edge = tuple[object, int]  # a node of autograd's graph, and the number of its result


def edge_of(tensor: torch.Tensor) -> Edge | None:
    """Return where a tensor's gradient goes; None where it needs none."""
    if not tensor.requires_grad:
        return None
    edge = torch.autograd.graph.get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def readers_of(returned: object) -> dict[Edge, set[object]]:
    """Return by edge what sends gradients along it: nodes, and the loss of what a model returned.

    Which of that the loss reads is not known.
    """
    leaves = pytree.tree_leaves(returned)
    readers: dict[Edge, set[object]] = {}
    for node in nodes_behind(leaves):
        for edge in _edges(node):
            readers.setdefault(edge, set()).add(node)
    for leaf in leaves:
        own = edge_of(leaf) if isinstance(leaf, torch.Tensor) else None
        if own:
            readers.setdefault(own, set()).add(LOSS)
    return readers


def edges_behind(results: Iterable[object]) -> Counter[Edge | None]:
    """Count how many gradients autograd adds up at each edge for some results."""
    return Counter(edge for node in nodes_behind(results) for edge in _edges(node))


def _edges(node: object) -> Iterator[Edge]:
    edges: tuple[Edge, ...] = node.next_functions  # type: ignore[attr-defined]
    return (edge for edge in edges if edge[0] is not None)
