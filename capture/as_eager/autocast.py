"""Autocast as eager has it: a parameter is cast once, and its gradients are added in 16 bits.

Inside `torch.autocast` eager keeps the 16-bit copy of a parameter until the outermost region ends
(`cached_cast` in aten/src/ATen/autocast_mode.cpp). A trace goes without that cache: a parameter
that is used twice would be cast twice, and its gradients added in float32 rather than in 16 bits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._functorch._aot_autograd import collect_metadata_analysis
from torch.fx.experimental import proxy_tensor

from remat_gen.capture.device.kind import DeviceKind
from remat_gen.capture.device.kinds import KINDS
from remat_gen.capture.process.replaced import kept_kernels, replaced

_CAST = torch.ops.aten._to_copy.default
_SWITCH_OFF = (proxy_tensor, collect_metadata_analysis)  # the cache of casts


@contextlib.contextmanager
def casts_of_eager() -> Iterator[None]:
    """Trace one cast of each parameter per autocast region; backward is traced without autocast."""
    copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    clear = torch.clear_autocast_cache

    def clear_all() -> None:
        copies.clear()
        clear()

    with contextlib.ExitStack() as stack:
        for module in _SWITCH_OFF:
            switched = replaced(module, "disable_autocast_cache", contextlib.nullcontext)
            stack.enter_context(switched)
        stack.enter_context(replaced(torch, "clear_autocast_cache", clear_all))
        stack.enter_context(torch._functorch.config.patch(backward_pass_autocast="off"))
        for kind in KINDS:
            stack.enter_context(_casting(kind, copies))
        yield


@contextlib.contextmanager
def _casting(
    kind: DeviceKind, copies: dict[int, tuple[torch.Tensor, torch.Tensor]]
) -> Iterator[None]:
    """Let a device's casts look into `copies` first; kept tensors keep their ids to themselves."""

    def cast(tensor: torch.Tensor | float, **kwargs: Any) -> torch.Tensor:
        if not isinstance(tensor, torch.Tensor):  # functorch's `0.5 * x`
            number: torch.Tensor = torch.scalar_tensor(tensor, dtype=kwargs.get("dtype"))
            return number
        if _is_cached(tensor, kwargs.get("dtype"), kind):
            if id(tensor) not in copies:
                with torch.enable_grad():  # a first use without is no reason for the next one
                    copies[id(tensor)] = tensor, _copy(tensor, **kwargs)
            return copies[id(tensor)][1]
        return _copy(tensor, **kwargs)

    with kept_kernels([_CAST]):
        _CAST.py_kernels[kind.autograd_key] = cast
        yield


def _copy(tensor: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    """Cast as autograd does, past the kernel that is replaced."""
    copy: torch.Tensor = _CAST._op_dk(torch._C.DispatchKey.Autograd, tensor, **kwargs)
    return copy


def _is_cached(tensor: torch.Tensor, dtype: object, kind: DeviceKind) -> bool:
    """Tell whether eager would cache this cast: of a float32 leaf, by autocast, to its dtype."""
    by_autocast = torch._C._dispatch_tls_is_dispatch_key_excluded(kind.autocast_key)
    return (
        tensor.dtype is torch.float32
        and dtype is torch.get_autocast_dtype(kind.type)
        and tensor.requires_grad
        and _is_leaf(tensor)
        and by_autocast
        and _in_a_region()
        and torch.is_autocast_cache_enabled()
    )


def _is_leaf(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor of the trace is a parameter or an input, which autograd sees no origin
    of; as they are wrapped, their own `is_leaf` is false."""
    return tensor.grad_fn is None or not tensor.grad_fn.next_functions


def _in_a_region() -> bool:
    """Tell whether an autocast region is open; inside its casts, autocast itself is off."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth > 0
