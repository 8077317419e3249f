"""Caches that a run fills: with fake tensors, which a later run must not find there."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from remat_gen.capture.observe.recorder import Recorder


@contextlib.contextmanager
def emptied(recorder: Recorder) -> Iterator[None]:
    """Run a forward; empty the caches that have fakes of it, and take what it computed away."""
    try:
        yield
    finally:
        for cache in recorder.caches.values():
            if any(isinstance(leaf, FakeTensor) for leaf in _held_by(cache)):
                cache.cache_clear()
        for owner, name in recorder.computed:
            vars(owner).pop(name, None)


def _held_by(cache: Any) -> list[Any]:
    return pytree.tree_leaves(gc.get_referents(cache))
