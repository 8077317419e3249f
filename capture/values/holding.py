"""What a model holds, its buffers included, to have it so again: no tensor is copied."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from remat_gen.capture.values.held import Held, files_of


@dataclass(frozen=True, slots=True)
class Holding:
    """Which parameters and buffers modules have, and what else they hold: to have it so again."""

    tables: tuple[tuple[Any, Any], ...]
    held: Held

    @classmethod
    def of(cls, model: nn.Module) -> Holding:
        """Note what a model holds now; no tensor is copied."""
        tables = [
            (table, table.copy())
            for module in model.modules()
            for table in (module._parameters, module._buffers, module._non_persistent_buffers_set)
        ]
        return cls(tuple(tables), Held.by(model, files_of(model)))

    @property
    def is_left(self) -> bool:
        """Tell whether the model has other parameters or buffers now."""
        return any(
            table.keys() != before.keys() or any(table[name] is not before[name] for name in table)
            for table, before in self.tables
            if isinstance(table, dict)
        )

    def put_back(self) -> None:
        """Let the model hold that again."""
        for table, before in self.tables:
            table.clear()
            table.update(before)
        self.held.put_back()


@contextlib.contextmanager
def held_as_before(model: nn.Module) -> Iterator[None]:
    """Let a model hold at the end what it holds now."""
    holding = Holding.of(model)
    try:
        yield
    finally:
        holding.put_back()


@contextlib.contextmanager
def first_step_undone(model: nn.Module, filled: Sequence[str] = ()) -> Iterator[None]:
    """Take away the buffers that steps make, with what they note beside; without such, nothing.

    Buffers that a first step has `filled` get their numbers back from elsewhere.
    """
    holding = Holding.of(model)
    try:
        yield
    finally:
        if filled or holding.is_left:
            holding.put_back()
