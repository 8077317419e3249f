"""What a training step runs in, where the user's file says so: `step_context()` returns autocast.

    def step_context():
        return torch.autocast("cuda", torch.bfloat16)

The forward of every step is then planned, checked and measured under it; backward is not, as
PyTorch advises.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from remat_gen.capture.load.builders import described
from remat_gen.capture.process.isolation import UserCode
from remat_gen.ir.errors import UsageError

CONTEXT = "step_context"


@dataclass(frozen=True, slots=True)
class Autocast:
    """An autocast around the call of a model."""

    device: str
    dtype: torch.dtype
    cached: bool

    def __call__(self) -> AbstractContextManager[object]:
        """Return the context to enter."""
        return torch.autocast(self.device, self.dtype, cache_enabled=self.cached)


_autocasts: weakref.WeakKeyDictionary[nn.Module, Autocast] = weakref.WeakKeyDictionary()


def remember_context(model: nn.Module, module: ModuleType, path: Path, device: str) -> None:
    """Ask the user's file what a step of its model runs in.

    Raises:
        UsageError: it returns something else than an autocast for the model's device, or fails.
    """
    make = getattr(module, CONTEXT, None)
    if make is None:
        return
    if not callable(make):
        raise UsageError(f"{path}: {CONTEXT} is {described(make)}; it must be a function")
    with UserCode(path, f"{CONTEXT}()"):
        made = make()
    if not isinstance(made, torch.autocast):
        raise UsageError(
            f"{path}: {CONTEXT}() returned {described(made)}; return torch.autocast(…): of all "
            "contexts around a step, that one can be planned"
        )
    if made.device != device:
        raise UsageError(
            f"{path}: {CONTEXT}() is autocast for {made.device}, and the model is on {device}"
        )
    if made._enabled and made.fast_dtype is not None:
        _autocasts[model] = Autocast(device, made.fast_dtype, made._cache_enabled)


@contextlib.contextmanager
def remember_autocast(part: nn.Module, autocast: Autocast | None) -> Iterator[None]:
    """Let a part of a model be called in what a step of the model is called in."""
    if autocast is not None:
        _autocasts[part] = autocast
    try:
        yield
    finally:
        _autocasts.pop(part, None)


def autocast_of(model: nn.Module) -> Autocast | None:
    """Return the autocast that a loaded model's step runs in."""
    return _autocasts.get(model)


def context_of(model: nn.Module) -> AbstractContextManager[object]:
    """Return the context for one call of a model."""
    autocast = autocast_of(model)
    return autocast() if autocast else contextlib.nullcontext()
