"""Trace the operators that eager runs, where torch would trace arithmetic of its own instead.

Under tracing torch replaces resampling and a few losses by Python (`OpOverload.py_impl`), which
rounds differently and takes many operations for one. Without that the trace has the operator.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

_KEYS = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)

# Packets of operators whose kernels have a backward of their own on every device.
_PACKETS = """
    upsample_nearest1d upsample_nearest2d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d
    _upsample_bilinear2d_aa _upsample_bicubic2d_aa
    hardshrink softshrink multi_margin_loss multilabel_margin_loss_forward
""".split()


@contextlib.contextmanager
def kernels_of_eager() -> Iterator[None]:
    """Take torch's replacements for tracing away, and put them back."""
    taken = [
        (
            operator,
            {key: operator.py_kernels.pop(key) for key in _KEYS if key in operator.py_kernels},
        )
        for operator in _operators()
    ]
    for operator, _ in taken:
        operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, kernels in taken:
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()


def _operators() -> Iterator[torch._ops.OpOverload]:
    for name in _PACKETS:
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            yield getattr(packet, overload)
