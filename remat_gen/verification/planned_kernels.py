"""The kernels that a plan for a GPU runs, for eager to be compared with.

cuDNN has kernels of its own for BatchNorm in 32 bits, and on Hopper for attention, which eager
prefers. Plans run its BatchNorm where running statistics are updated; its attention where the
device that was planned for prefers it. Others are the same mathematics, rounded otherwise, and draw
other numbers for attention's dropout. In a deep network with BatchNorm last bits grow until nothing
can be told apart from an error, so that eager runs the same kernels here. Its time is measured with
its own.

The gradient of `table[rows]` is added in any order on the CPU, too, by several threads from 32768
numbers on. Deterministic kernels add in one.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.process.replaced import replaced

_ASKED = "are_deterministic_algorithms_enabled"
_NORMS = ("batch_norm", "instance_norm")  # torch.nn.functional looks them up in torch
_PARAMETERS = ("input", "weight", "bias", "running_mean", "running_var", "training")
_ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@contextlib.contextmanager
def planned_kernels(
    device: torch.device, modelled: AbsentDevice | None, *, deterministic: bool = False
) -> Iterator[None]:
    """Let eager run a plan's kernels on a GPU; a plan may be `modelled` for another one."""
    with contextlib.ExitStack() as stack:
        if deterministic:
            stack.callback(torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode())
            stack.enter_context(replaced(torch, _ASKED, _as_before(getattr(torch, _ASKED))))
            torch.set_deterministic_debug_mode("warn")
        if kind_of(device).has_cudnn:
            for name in _NORMS:
                own = _without_cudnn(getattr(torch, name))
                stack.enter_context(replaced(torch, name, own))
            if modelled:
                first = [SDPBackend.CUDNN_ATTENTION] * modelled.prefers_cudnn_attention
                stack.enter_context(sdpa_kernel([*first, *_ATTENTION], set_priority=True))
        yield


def _as_before(asks: Callable[[], bool]) -> Callable[[], bool]:
    """Let `interpolate` hear what was set before: it would run other operations.

    Dynamo is told the truth, which it compares with what it finds.
    """
    before = asks()
    functional = torch.nn.functional.__name__
    return lambda: before if sys._getframe(1).f_globals["__name__"] == functional else asks()


def _without_cudnn(norm: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a norm that takes PyTorch's kernel where a plan does, and eager would take cuDNN's.

    By torch's setting: the norm's argument `cudnn_enabled` chooses nothing
    (`_select_batch_norm_backend` in aten/src/ATen/native/Normalization.cpp).
    """

    @functools.wraps(norm)
    def own(*args: Any, **kwargs: Any) -> torch.Tensor:
        given = dict(zip(_PARAMETERS, args, strict=False)) | kwargs
        training = given.get("training", given.get("use_input_stats"))
        planned = training and given["running_mean"] is not None
        before = torch._C._get_cudnn_enabled()
        torch._C._set_cudnn_enabled(before and bool(planned))
        try:
            return norm(*args, **kwargs)
        finally:
            torch._C._set_cudnn_enabled(before)

    return own
