"""Trace `q, k, v = tensor` as eager runs it: one `unbind`, whose backward is one `stack`.

Dynamo takes the rows one by one. Backward then fills a whole tensor with zeros for each of them,
and adds them up: for n rows n - 1 more tensors at once, and 2 n - 1 operations for one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._dynamo.variables import TensorVariable

from remat_gen.capture.fx import metadata
from remat_gen.capture.fx.storages import is_getitem
from remat_gen.capture.process.replaced import replaced


@contextlib.contextmanager
def rows_of_eager() -> Iterator[None]:
    """Let Dynamo unbind the tensors that are unpacked or iterated."""
    one_by_one = TensorVariable.unpack_var_sequence

    def unpack(tensor: Any, tx: Any, idxes: Sequence[int] | None = None) -> Any:
        rows = one_by_one(tensor, tx, idxes)  # refuses what eager refuses; unread, they are nothing
        if type(tensor) is not TensorVariable or len(rows) < 2:
            return rows
        return tensor.call_method(tx, "unbind", [], {}).unpack_var_sequence(tx)

    with replaced(TensorVariable, "unpack_var_sequence", unpack):
        yield


def name_items(captured: torch.fx.GraphModule, joint: torch.fx.GraphModule) -> None:
    """Give the items of the joint graph the variables that Dynamo's graph has for them.

    AOTAutograd takes a tuple apart anew: its items come from the call, not from `q, k, v`.
    """
    items = [n for n in captured.graph.nodes if is_getitem(n)]
    variables = {(n.args[0].name, n.args[1]): n.name for n in items if _of_call(n)}
    for node in joint.graph.nodes:
        if is_getitem(node):
            call = metadata.origin(node.args[0])
            node.meta[metadata.ITEM] = variables.get((call, node.args[1]), "")


def _of_call(item: torch.fx.Node) -> bool:
    """Tell whether it is one of the results of a call; of a tensor, it is a slice of it."""
    return isinstance(item.args[0], torch.fx.Node) and isinstance(item.args[1], int)
