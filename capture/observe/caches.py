"""Caches that a run fills: with fake tensors, which a later run must not find there."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils import _pytree as pytree


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches of functions, by identity, and the cached properties that a run may fill."""

    functions: dict[int, Any] = field(default_factory=dict)
    properties: list[tuple[Any, str]] = field(default_factory=list)

    @contextlib.contextmanager
    def emptied(self) -> Iterator[None]:
        """Run a forward; empty what has fakes of it, and take away what it computed."""
        try:
            yield
        finally:
            for cache in self.functions.values():
                held = pytree.tree_leaves(gc.get_referents(cache))
                if any(isinstance(leaf, FakeTensor | FunctionalTensor) for leaf in held):
                    cache.cache_clear()
            for owner, name in self.properties:
                vars(owner).pop(name, None)
