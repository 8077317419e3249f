"""Sums whose kept dimensions only a view drops again: written as sums that drop them.

Autograd sums the gradient of what was broadcast, a bias say, to a shape with ones, and views that
in the shape it is of. Both kernels write the same numbers to the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

_SUM = torch.ops.aten.sum.dim_IntList
_VIEW = torch.ops.aten.view.default


def drop_kept_dims(joint: fx.Graph) -> None:
    """Drop the dimensions that were summed, where views alone read the sum, and one does that."""
    for node in list(joint.nodes):
        if node.target is _SUM and node.args[2:] == (True,) and _shape(node):
            _drop(joint, node)


def _drop(joint: fx.Graph, node: fx.Node) -> None:
    views = list(node.users)
    same = [view for view in views if view.target is _VIEW and _shape(view) == _dropped(node)]
    if not same or any(view.target is not _VIEW for view in views):
        return
    node.args = node.args[:2]
    node.meta["val"] = same[0].meta["val"]
    for view in same:
        view.replace_all_uses_with(node)
        joint.erase_node(view)


def _dropped(node: fx.Node) -> list[str]:
    """Return the shape of a sum without the dimensions that it sums over."""
    shape, dims = _shape(node), node.args[1] or range(len(_shape(node)))
    assert isinstance(dims, Sequence)
    summed = {int(str(dim)) % len(shape) for dim in dims}
    return [size for dim, size in enumerate(shape) if dim not in summed]


def _shape(node: fx.Node) -> list[str]:
    """Return a result's shape as text, so that no comparison of varying lengths asks a question."""
    return [str(size) for size in node.meta["val"].shape]
