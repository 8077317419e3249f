"""Autograd's graph behind a forward's results, as a list that is compared with another run's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

_SAVED = "_saved_"
_NUMBERS = (bool, int, float, complex, str, type(None))


def gradient_graph(leaves: list[Any], names: Mapping[int, str]) -> list[object]:
    """List the nodes behind tensors, each with its numbers, what it leads to, and whose leaf it is.

    `names` has those of parameters and arguments by identity.
    """
    roots = [leaf.grad_fn if isinstance(leaf, Tensor) else None for leaf in leaves]
    numbers = {node: i for i, node in enumerate(nodes_behind(leaves))}
    said: list[object] = [None if root is None else numbers[root] for root in roots]
    for node in numbers:
        to = [(numbers.get(other), place) for other, place in node.next_functions]
        leaf = names.get(id(getattr(node, "variable", None)))
        said.append((node.name(), leaf, to, _saved_numbers(node)))
    return said


def nodes_behind(leaves: Iterable[object]) -> dict[Any, None]:
    """Return the nodes that tensors lead to, in the order in which they are found."""
    roots = [leaf.grad_fn for leaf in leaves if isinstance(leaf, Tensor)]
    found: dict[Any, None] = {}
    waiting: list[Any] = [root for root in reversed(roots) if root is not None]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found[node] = None
            waiting += [to for to, _ in reversed(node.next_functions) if to is not None]
    return found


def read_on(values: Sequence[Any]) -> frozenset[int]:
    """Return the positions of the outputs whose gradients eager sums from others', too.

    Also where forward wrote over a view of an output.
    """
    reached = {edge for node in nodes_behind(values) for edge in node.next_functions}
    tensors = ((i, value) for i, value in enumerate(values) if isinstance(value, Tensor))
    return frozenset(i for i, t in tensors if t.grad_fn and (t.grad_fn, t.output_nr) in reached)


def _saved_numbers(node: Any) -> dict[str, object]:
    """Return the numbers that a node has kept; tensors are none, their values show in results."""
    found: dict[str, object] = {}
    for name in dir(node):
        if name.startswith(_SAVED):
            try:
                value = getattr(node, name)
            except Exception:  # a tensor's, which was not saved
                continue
            if all(isinstance(leaf, _NUMBERS) for leaf in pytree.tree_leaves(value)):
                found[name] = value
    return found
