"""FX arguments to arguments of the graph."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from remat_gen.capture.fx.symbolic_sizes import Sizes
from remat_gen.ir.errors import TraceError
from remat_gen.ir.graph import Argument, Literal, Ref

_KINDS = (
    (torch.dtype, "dtype"),
    (torch.layout, "layout"),
    (torch.memory_format, "memory_format"),
)


def argument(
    value: object, tensor_name: Callable[[torch.fx.Node], str], sizes: Sizes | None = None
) -> Argument:
    """Translate one argument of an FX node; `sizes` translates symbolic ones.

    Raises:
        TraceError: a value that has no place in source code (an object).
    """
    if isinstance(value, torch.fx.Node):
        return Ref(tensor_name(value))
    if isinstance(value, tuple | list):
        return tuple(argument(item, tensor_name, sizes) for item in value)
    if isinstance(value, torch.SymInt | torch.SymFloat) and sizes:
        return sizes.size(value)
    if isinstance(value, float) and not math.isfinite(value):
        return Literal("float", str(value))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, complex):
        return Literal("complex", repr(value))
    if isinstance(value, torch.device):
        return Literal("device", str(value))
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return Literal(name, str(value).removeprefix("torch."))
    raise TraceError(f"an operation takes {value!r}, which cannot be written as source")
