"""BatchNorm's running statistics: a planned step's kernel writes them where they are, in buffers.

In 16 bits a trace makes them in float32 and casts them behind; what is written in place needs no
cast. Where a kernel cannot write them so, another operator returns the new ones: InstanceNorm's old
ones are repeated for each sample, and the mean over those goes back; or forward reads new ones.
"""

from __future__ import annotations

import torch

from remat_gen.capture.fx.nodes import position, without_statistics
from remat_gen.capture.fx.storages import is_getitem

aten = torch.ops.aten
_BATCH_NORM = aten._native_batch_norm_legit_functional.default
_CUDNN = "remat.cudnn_batch_norm.default"
_RETURNING = aten._batch_norm_with_update_functional.default  # chooses the kernel as eager does
_STATISTICS = (3, 4)  # among its arguments the old ones, among its results the new ones


def written_as_they_are(joint: torch.fx.Graph) -> None:
    """Let new statistics have the dtype of the old ones, and leave their casts out."""
    for node in [n for n in joint.nodes if n.target is _BATCH_NORM]:
        for result in [user for user in node.users if is_getitem(user)]:
            if result.args[1] in _STATISTICS:
                _without_casts(node, result)


def returned_where_read(joint: torch.fx.Graph) -> None:
    """Let norms return their new statistics where those, or the old ones, are no buffer's alone."""
    norms = [node for node in joint.nodes if _updates(node)]
    for node in reversed(norms):
        if not all(map(_only_kept, _new_statistics(node))):
            _return_statistics(node)
    for node in norms:
        if _updates(node) and not all(map(_of_buffer, node.args[3:5])):
            _return_statistics(node)


def _updates(node: torch.fx.Node) -> bool:
    return str(node.target) in (str(_BATCH_NORM), _CUDNN)


def _new_statistics(node: torch.fx.Node) -> list[torch.fx.Node]:
    *_, mean, var = range(len(node.meta["val"]))
    return [user for user in node.users if is_getitem(user) and position(user) in (mean, var)]


def _of_buffer(old: torch.fx.Node) -> bool:
    """Tell whether old statistics are a buffer's, or a kernel has just written them there."""
    makers = filter(_updates, old.all_input_nodes)
    return old.op == "placeholder" or any(old in _new_statistics(maker) for maker in makers)


def _only_kept(result: torch.fx.Node) -> bool:
    """Tell whether new statistics go nowhere but into a buffer, or to the norm's next call."""
    readers = [user for user in result.users if user.op != "output"]
    given = [(user, without_statistics(user)) for user in readers]
    read = [(*args[:3], *args[5:]) if _updates(user) else args for user, args in given]
    return all(result not in args for args in read)


def _return_statistics(node: torch.fx.Node) -> None:
    made = node.meta["val"]
    if node.target is _BATCH_NORM:
        for result in [user for user in node.users if is_getitem(user)]:
            index = position(result)
            result.args = node, index + (index in _STATISTICS)
        reserve = made[1].new_empty(0, dtype=torch.uint8)
        node.meta["val"] = (*made[:3], reserve, *made[3:])
    node.target = _RETURNING
    node.args = (*node.args[:5], *node.args[6:])  # it always trains


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
