"""Trace the operators that eager runs, where torch would trace arithmetic of its own instead.

Under tracing torch replaces resampling and a few losses by Python (`OpOverload.py_impl`), which
rounds differently and takes many operations for one. Without that the trace has the operator. For
dropout there is a replacement of our own.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

from remat_gen.capture.as_eager import rms_norm
from remat_gen.capture.as_eager.attention import attention
from remat_gen.capture.as_eager.dropout import dropout, dropout_, dropout_of_gpu
from remat_gen.capture.as_eager.resampling import RESAMPLING
from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.device.cudnn_norms import batch_norm, cudnn_batch_norm
from remat_gen.capture.process.replaced import kept_dicts, kept_kernels
from remat_gen.capture.refuse.untraceable import OWN_GENERATOR
from remat_gen.capture.rnn import traced_rnns
from remat_gen.ir.errors import RefusedKernelError

aten = torch.ops.aten
_Key: TypeAlias = torch._C.DispatchKey
_ByKey: TypeAlias = Mapping[_Key, Callable[..., Any]]
_Kernels: TypeAlias = Mapping[torch._ops.OpOverload, _ByKey]
_KEYS = (_Key.Autograd, _Key.CompositeImplicitAutograd)


def _for(kernel: Callable[..., Any]) -> _ByKey:
    return dict.fromkeys(_KEYS, kernel)


def _fill_diagonal(x: torch.Tensor, value: float, wrap: bool = False) -> torch.Tensor:
    """Fill the diagonal of a matrix, as a view that a trace knows: torch's is of strides."""
    if x.ndim != 2 or wrap:
        return aten.fill_diagonal_.default.decompose(x, value, wrap)  # type: ignore[no-any-return]
    x.diagonal().fill_(value)
    return x


def counted(
    indices: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor | None:
    """Count in `minlength` places: eager makes more for a greater index, here that raises.

    None where `torch.bincount` is not asked so.
    """
    if weights is not None or not minlength:
        return None
    counts = torch.zeros(minlength, dtype=torch.int64, device=indices.device)
    return counts.scatter_add_(0, indices.long(), torch.ones_like(indices, dtype=torch.int64))


def _bincount(*args: Any, **kwargs: Any) -> torch.Tensor:
    counts = counted(*args, **kwargs)
    if counts is None:
        raise RefusedKernelError(
            "how many numbers torch.bincount returns depends on values: give it a minlength above "
            "all of them, and no weights, or take F.one_hot(indices, n).sum(0)"
        )
    return counts


def _drawn_into(x: torch.Tensor, *limits: int, generator: object = None) -> torch.Tensor:
    """Draw whole numbers below a limit, or from one to another, as `torch.randint` does.

    A graph cannot call `aten.random.from`, as which `x.random_(1, n)` is traced: its name is a word
    of Python's. Across memory `random_` draws in another order.
    """
    if generator is not None:
        raise RefusedKernelError(OWN_GENERATOR)
    if not x.is_contiguous():
        raise RefusedKernelError(
            "random_() draws into a tensor whose rows lie across memory: draw by torch.randint"
        )
    low, high = limits if len(limits) > 1 else (0, *limits)
    return x.copy_(torch.randint(low, high, x.shape, dtype=x.dtype, device=x.device))


_OURS: _Kernels = {
    aten.bincount.default: {_Key.Autograd: _bincount},
    aten.fill_diagonal_.default: _for(_fill_diagonal),
    getattr(aten.random_, "from"): {_Key.Autograd: _drawn_into},
    aten.random_.to: {_Key.Autograd: _drawn_into},
    aten.dropout.default: _for(dropout),
    aten.dropout_.default: _for(dropout_),
    aten.cudnn_batch_norm.default: {_Key.Autograd: cudnn_batch_norm},
    **{operator: _for(kernel) for operator, kernel in traced_rnns.kernels().items()},
}
_OF_GPU: _Kernels = {
    aten.dropout.default: _for(dropout_of_gpu),
    aten.dropout_.default: _for(dropout_),
    aten.batch_norm.default: _for(batch_norm),
    aten.rms_norm.default: _for(rms_norm.rms_norm),
    aten._fused_rms_norm.default: {
        _Key.CompositeImplicitAutograd: rms_norm.kept,
        _Key.Meta: rms_norm.arithmetic,
    },
}

# Packets of operators whose kernels have a backward of their own on every device, or are made of
# others that eager's backward goes through (istft).
_PACKETS = (
    *RESAMPLING,
    *"hardshrink softshrink multi_margin_loss multilabel_margin_loss_forward istft".split(),
)


@contextlib.contextmanager
def kernels_of_eager(stands_for: AbsentDevice | None = None) -> Iterator[None]:
    """Take torch's replacements for tracing away, and put them back.

    A model on the CPU that stands for one on a GPU is traced with the kernels of that.
    """
    ours = _of_gpu(stands_for) if stands_for else _OURS
    theirs = [*_operators()]
    with kept_kernels([*theirs, *ours]):
        for operator in theirs:
            for key in _KEYS:
                operator.py_kernels.pop(key, None)
        for operator, kernels in ours.items():
            operator.py_kernels.update(kernels)
        yield


@contextlib.contextmanager
def calls_of_eager() -> Iterator[None]:
    """Let Dynamo keep sums with a factor: `x.add_(y, alpha=0.1)`, `x.addcmul_(y, z, value=0.1)`.

    It makes a product and a sum of them, or calls an operator of Inductor's, which the generated
    file would not find; both round apart from eager.
    """
    special = TorchInGraphFunctionVariable._get_handlers()
    with kept_dicts(special), torch._dynamo.config.patch(enable_dynamo_decompositions=False):
        special.pop(torch.addcdiv, None)
        yield


def _of_gpu(device: AbsentDevice) -> _Kernels:
    there = functools.partial(attention, device=device)
    return {**_OF_GPU, aten.scaled_dot_product_attention.default: _for(there)}


def _operators() -> Iterator[torch._ops.OpOverload]:
    for name in _PACKETS:
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            yield getattr(packet, overload)
