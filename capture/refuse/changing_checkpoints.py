"""Checkpoints of forward's own that change numbers: what runs in them, as long as it runs.

A plan leaves checkpoints out and decides anew what runs again. That is the same step but where
running again does something else: draws anew, writes once more, gives no gradients.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import checkpoint as torchs
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointFunction

from remat_gen.capture.process.operands import storage_of, tensors_in, written_by
from remat_gen.capture.process.replaced import replaced

_DRAWS = (
    "what is checkpointed here draws random numbers, and backward draws others "
    "(preserve_rng_state=False): leave the checkpoint out, or that argument"
)
_WRITES = (
    "what is checkpointed here writes into a tensor from outside (BatchNorm into its statistics), "
    "and does so once more in backward: leave the checkpoint out, a plan runs again what it must"
)
_NO_GRADIENT = (
    "nothing that goes into the checkpoint here requires grad, so that use_reentrant=True gives "
    "the parameters inside no gradient: leave the checkpoint out, or pass use_reentrant=False"
)

Refuse = Callable[[str], None]


@contextlib.contextmanager
def watched_checkpoints(note: Callable[[], Refuse]) -> Iterator[None]:
    """Note each checkpoint that a forward runs, as it begins; refuse those that no plan has."""
    reentrant: Callable[..., Any] = CheckpointFunction.forward
    others = torchs._checkpoint_without_reentrant_generator

    def watched_reentrant(ctx: Any, function: Any, preserve: bool, *args: Any) -> Any:
        needs = any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)
        with _Inside(note(), preserve, gives_gradients=needs):
            return reentrant(ctx, function, preserve, *args)

    def watched_other(function: Any, preserve: bool = True, *rest: Any, **named: Any) -> Any:
        with _Inside(note(), preserve, gives_gradients=True):
            yield from others(function, preserve, *rest, **named)

    with (
        replaced(CheckpointFunction, "forward", staticmethod(watched_reentrant)),
        replaced(torchs, "_checkpoint_without_reentrant_generator", watched_other),
    ):
        yield


class _Inside(TorchDispatchMode):
    """Refuses what runs inside of a checkpoint, where running it again does something else."""

    supports_higher_order_operators = True

    def __init__(self, refuse: Refuse, preserves: bool, *, gives_gradients: bool) -> None:
        TorchDispatchMode.__init__(self)
        self._refuse, self._preserves, self._gives_gradients = refuse, preserves, gives_gradients
        self._made: dict[int | None, torch.Tensor] = {}  # by storage

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and look at it."""
        kwargs = kwargs or {}
        given = tensors_in((args, kwargs))
        read = set(map(storage_of, given))
        if not self._preserves and torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()):
            self._refuse(_DRAWS)
        if not self._gives_gradients and any(tensor.requires_grad for tensor in given):
            self._refuse(_NO_GRADIENT)
        if any(storage_of(t) not in self._made for t in written_by(func, args, kwargs)):
            self._refuse(_WRITES)
        result = func(*args, **kwargs)
        self._made |= {storage_of(t): t for t in tensors_in(result) if storage_of(t) not in read}
        return result
