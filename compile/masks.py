"""How masks are handed to what is compiled.

For the CPU torch.compile turns a load of booleans into a loop over single elements, several times
as slow as all the rest of a part: the masked softmax of examples/gpt.py took 1354 µs with a mask of
booleans and 372 µs with one of integers (one core, AVX-512; eager 750 µs), the gradient of a
dropped-out softmax 1586 µs and 446 µs. GPUs load them like any other number.

A mask of dropout, which is only multiplied with, is seen as bytes, without a copy. A mask that is
small beside what the part makes, as one that is broadcast, is copied to integers for the call.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum

from remat_gen.codegen.expressions.expressions import DROPOUT_SCALE
from remat_gen.ir.graph import Graph, Operation

_SMALL = 8  # times as many elements in the largest result


class Handed(Enum):
    """What stands behind an argument in the call of a part."""

    AS_IS = ""
    BYTES = ".view(torch.uint8)"
    INTEGERS = ".int()"


def handed(graph: Graph, storage: str, operations: Iterable[Operation]) -> Handed:
    """Return how a part's operations get one of the storages that it reads."""
    mask = graph.tensors[storage]
    if mask.dtype != "bool" or not mask.device.startswith("cpu"):
        return Handed.AS_IS
    operations = tuple(operations)
    readers = {o.target for o in operations if storage in graph.reads(o)}
    if readers == {DROPOUT_SCALE}:
        return Handed.BYTES
    made = (math.prod(graph.tensors[n].shape) for o in operations for n in o.outputs if n)
    small = _SMALL * math.prod(mask.shape) <= max(made, default=0)
    return Handed.INTEGERS if small else Handed.AS_IS
