"""Caches that a run fills: with fake tensors, which a later run must not find there."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from remat_gen.capture.process.operands import tensors_in


@dataclass(slots=True)
class Caches:
    """The caches of functions, by identity, and the cached properties that a run may fill.

    `were_filled` where a run has left tensors there.
    """

    functions: dict[int, Any] = field(default_factory=dict)
    properties: list[tuple[Any, str]] = field(default_factory=list)
    were_filled: bool = False

    @contextlib.contextmanager
    def emptied(self) -> Iterator[None]:
        """Run a forward; empty the caches that have tensors, and take away what it computed.

        Also of tensors that were there before: what is found there is not made, and not seen.
        """
        self._empty()
        try:
            yield
        finally:
            self.were_filled |= bool(self.held())
            self._empty()

    def _empty(self) -> None:
        for cache in self.functions.values():
            if tensors_in(gc.get_referents(cache)):
                cache.cache_clear()
        for owner, name in self.properties:
            vars(owner).pop(name, None)

    def held(self) -> list[tuple[Any, list[torch.Tensor]]]:
        """Return the functions (of properties, too) whose results are kept, with their tensors."""
        functions = [(c.__wrapped__, gc.get_referents(c)) for c in self.functions.values()]
        properties = [
            (getattr(type(owner), name).func, vars(owner)[name])
            for owner, name in self.properties
            if name in vars(owner)
        ]
        found = [(function, tensors_in(value)) for function, value in (*functions, *properties)]
        return [(function, tensors) for function, tensors in found if tensors]
