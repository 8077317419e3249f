"""Trace `q, k, v = tensor` as eager runs it: one `unbind`, whose backward is one `stack`.

Dynamo takes the rows one by one. Backward then fills a whole tensor with zeros for each of them,
and adds them up: for n rows n - 1 more tensors at once, and 2 n - 1 operations for one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

from torch._dynamo.variables import TensorVariable


@contextlib.contextmanager
def rows_of_eager() -> Iterator[None]:
    """Let Dynamo unbind the tensors that are unpacked or iterated."""
    one_by_one = TensorVariable.unpack_var_sequence

    def unpack(tensor: Any, tx: Any, idxes: Sequence[int] | None = None) -> Any:
        rows = one_by_one(tensor, tx, idxes)  # refuses what eager refuses; unread, they are nothing
        if type(tensor) is not TensorVariable or len(rows) < 2:
            return rows
        return tensor.call_method(tx, "unbind", [], {}).unpack_var_sequence(tx)

    with mock.patch.object(TensorVariable, "unpack_var_sequence", unpack):
        yield
