"""Tensors that forward writes into keep their layout in the trace, as they do in eager.

AOTAutograd traces `x.masked_fill_(…)` as `masked_fill` and lets the result stand for `x` from then
on. That one may lie otherwise: `masked_fill` returns a contiguous tensor where `x` was transposed.
What goes by the order of memory would be another then: the draws of a dropout behind it, a view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

from remat_gen.capture.layouts.real_layouts import all_have_hints, at_example
from remat_gen.capture.process.replaced import replaced

aten = torch.ops.aten
_torch: Any = torch  # its functions for functional tensors have no types


@contextmanager
def layouts_of_written() -> Iterator[None]:
    """Let what stands for a tensor that was written into be laid out as that one."""
    dispatch: Callable[..., Any] = FunctionalTensorMode.__torch_dispatch__

    def laid_out(
        mode: FunctionalTensorMode, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        written = args[0] if args and _writes_first(func) else None
        if not isinstance(written, FunctionalTensor):
            return dispatch(mode, func, types, args, kwargs)
        before = _inner(written)
        if not all_have_hints(before):
            return dispatch(mode, func, types, args, kwargs)
        if func is aten.bernoulli_.float and not (kwargs or at_example(before).is_contiguous()):
            _let_stand_for(written, _drawn(before, *args[1:]))
            return written
        result = dispatch(mode, func, types, args, kwargs)
        after = _inner(written)
        if _order(after) != _order(before) and _is_dense(before):
            _let_stand_for(written, _in_order(after, _order(before)))
        return result

    with replaced(FunctionalTensorMode, "__torch_dispatch__", laid_out):
        yield


def _writes_first(func: Any) -> bool:
    """Tell whether an operator is `x.name_(…)`, and no `squeeze_` or `t_`: they see x otherwise."""
    schema = func._schema
    first = schema.arguments[0].alias_info if schema.arguments else None
    named = schema.name.endswith("_") and not schema.name.endswith("__")
    return bool(first and first.is_write and named) and torch.Tag.inplace_view not in func.tags


def _inner(written: FunctionalTensor) -> Tensor:
    _torch._sync(written)
    value: Tensor = _torch._from_functional_tensor(written.elem)
    return value


def _let_stand_for(written: FunctionalTensor, value: Tensor) -> None:
    _torch._functionalize_replace(written.elem, value)
    _torch._functionalize_commit_update(written.elem)
    _torch._functionalize_sync(written.elem)


def _drawn(x: Tensor, p: float = 0.5) -> Tensor:
    """Draw into a tensor like x in the order of its memory, as `bernoulli_` does."""
    mask: Tensor = torch.ops.remat.dropout_mask(x.shape, x.stride(), p, device=x.device)
    return mask.to(x.dtype)


def _is_dense(x: Tensor) -> bool:
    return is_non_overlapping_and_dense_or_false(at_example(x))


def _order(x: Tensor) -> tuple[int, ...]:
    """Return the dimensions of several elements, the one of the largest stride first."""
    example = at_example(x)
    long = [dim for dim, size in enumerate(example.shape) if size > 1]
    return tuple(sorted(long, key=example.stride().__getitem__, reverse=True))


def _in_order(x: Tensor, order: Sequence[int]) -> Tensor:
    """Return a copy whose dimensions lie in memory in such an order."""
    dims = [*(dim for dim in range(x.ndim) if dim not in order), *order]
    copy = x.permute(dims).clone(memory_format=torch.contiguous_format)
    return copy.permute([dims.index(dim) for dim in range(x.ndim)])
