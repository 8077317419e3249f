"""BatchNorm's running statistics in 16 bits: kernels write them in their buffers' own dtype.

A trace makes them in float32 and casts them behind; what is written in place needs no cast.
"""

from __future__ import annotations

import torch

from remat_gen.capture.fx.storages import is_getitem

aten = torch.ops.aten
_BATCH_NORM = aten._native_batch_norm_legit_functional.default
_STATISTICS = (3, 4)  # among its arguments the old ones, among its results the new ones


def written_as_they_are(joint: torch.fx.Graph) -> None:
    """Let new statistics have the dtype of the old ones, and leave their casts out."""
    for node in [n for n in joint.nodes if n.target is _BATCH_NORM]:
        for result in [user for user in node.users if is_getitem(user)]:
            if result.args[1] in _STATISTICS:
                _without_casts(node, result)


def _without_casts(node: torch.fx.Node, result: torch.fx.Node) -> None:
    index = result.args[1]
    assert isinstance(index, int)
    buffer = node.args[index]
    assert isinstance(buffer, torch.fx.Node)
    dtype = buffer.meta["val"].dtype
    for cast in [user for user in result.users if user.target is aten._to_copy.default]:
        if cast.meta["val"].dtype is dtype:
            made = [*node.meta["val"]]
            made[index] = result.meta["val"] = cast.meta["val"]
            node.meta["val"] = tuple(made)
            cast.replace_all_uses_with(result)
            node.graph.erase_node(cast)
