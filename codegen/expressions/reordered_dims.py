"""Views that reorder dimensions and nothing else, one on another: they are written as one."""

from __future__ import annotations

from collections.abc import Mapping

from remat_gen.ir.graph import Graph, View


def reordered(graph: Graph, views: Mapping[str, View], view: View) -> tuple[str, list[int]] | None:
    """Return what two and more such views are made of, and where its dimensions stand then."""
    order, base = _order(graph, view), view.base
    while order and (inner := views.get(base)) and (first := _order(graph, inner)):
        order, base = [first[dim] for dim in order], inner.base
    return (base, order) if order and base != view.base else None


def _order(graph: Graph, view: View) -> list[int]:
    """Return which dimension of its base each one of a view is; nothing where more is another."""
    count = len(graph.tensors[view.tensor].shape)
    match view.target, view.args[1:]:
        case "aten.permute.default", (tuple(dims),):
            return [dim % count for dim in dims if isinstance(dim, int)]
        case "aten.transpose.int", (int(one), int(other)):
            order = [*range(count)]
            order[one], order[other] = order[other], order[one]
            return order
    return []
