"""Trace the attention that models of transformers run where a call gives no mask: plain causal.

Before attention transformers looks at the *values* of the position ids, for several sequences
packed into one row. It finds none and leaves the mask to the kernel. Under tracing it cannot look:
every attention gets a mask of batch × length² elements in each layer, and with it a kernel that
rounds otherwise. Position ids that count from somewhere on (`arange`, moved, viewed, repeated for
each row) hold no packed rows in any step, of any length.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.weak import WeakIdKeyDictionary

LIBRARY = "transformers.masking_utils"
_PACKED = "find_packed_sequence_indices"
_EXPORTING = "is_torchdynamo_exporting"
# What leaves rows that count rows that count, whatever the lengths. Of others, a remainder say,
# the values at the example's lengths tell nothing of those at smaller ones.
_COUNTING = frozenset(
    """aten.arange.default aten.arange.start aten.add.Tensor aten.sub.Tensor aten.unsqueeze.default
    aten.squeeze.dim aten.expand.default aten.view.default aten._unsafe_view.default
    aten.slice.Tensor aten.alias.default aten.detach.default aten.clone.default
    aten._to_copy.default""".split()
)


@dataclass(slots=True)
class Positions:
    """Whether each look at position ids found rows that count, of one sequence each."""

    looks: list[bool] = field(default_factory=list)

    @property
    def plain(self) -> bool:
        """Tell whether no row can ever hold several sequences."""
        return bool(self.looks) and all(self.looks)


@contextlib.contextmanager
def watched_positions() -> Iterator[Positions]:
    """Watch what transformers asks of position ids while a model runs on fake tensors."""
    positions = Positions()
    library = sys.modules.get(LIBRARY)
    find = getattr(library, _PACKED, None)
    if find is None:
        yield positions
        return
    with _CountingValues() as counting:

        def look(position_ids: torch.Tensor) -> object:
            positions.looks.append(counting.holds(position_ids, lambda ids: find(ids) is None))
            return find(position_ids)

        with mock.patch.object(library, _PACKED, look):
            yield positions


@contextlib.contextmanager
def masks_of_eager(positions: Positions) -> Iterator[None]:
    """Let transformers leave causal masks to the kernel while a model is traced, as in eager mode.

    It makes masks for what is exported, since a program may be given a cache or one token later.
    A planned module is not: it refuses other shapes.
    """
    library = sys.modules.get(LIBRARY)
    with contextlib.ExitStack() as stack:
        if hasattr(library, _EXPORTING):
            stack.enter_context(mock.patch.object(library, _EXPORTING, _no))
        if positions.plain:
            stack.enter_context(mock.patch.object(library, _PACKED, _none))
        yield


def _no() -> bool:
    return False


def _none(_position_ids: torch.Tensor) -> None:
    return None


class _CountingValues(TorchDispatchMode):
    """Keeps the values of fake integers that count, on the CPU: made by `_COUNTING` alone."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self._values = WeakIdKeyDictionary()

    def holds(self, fake: torch.Tensor, condition: Callable[[torch.Tensor], bool]) -> bool:
        """Tell whether a tensor's values are known and fulfil a condition."""
        value = self._values.get(fake)
        if value is None:
            return False
        with _disable_current_modes():
            return condition(value)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run an operation, and once more with values where all that it reads is known."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        read = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if not isinstance(func, torch._ops.OpOverload):
            return result
        if func._schema.is_mutable and not all(x.is_floating_point() for x in read):
            self._values.clear()  # views share what is written: rather know nothing
        known = all(x in self._values for x in read) and _is_small_integer(result)
        if known and len(read) < 2 and str(func) in _COUNTING and not _has_step(func, args):
            self._values[result] = self._run(func, args, kwargs)
        return result

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def value(leaf: Any) -> Any:
            return self._values[leaf] if isinstance(leaf, torch.Tensor) else leaf

        args, kwargs = pytree.tree_map(value, (args, kwargs))
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        with _disable_current_modes():
            return func(*args, **kwargs)


_SMALL = 1 << 22  # elements: position ids of any batch, no table of a vocabulary


def _has_step(operator: torch._ops.OpOverload, args: tuple[Any, ...]) -> bool:
    return str(operator) == "aten.slice.Tensor" and len(args) > 4


def _is_small_integer(result: object) -> bool:
    if not isinstance(result, torch.Tensor):
        return False
    return not result.is_floating_point() and result.numel() <= _SMALL
