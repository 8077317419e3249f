"""Trace the attention that models of transformers run where a call gives no mask: plain causal.

Before attention transformers looks at the *values* of the position ids, for several sequences
packed into one row. It finds none and leaves the mask to the kernel. Under tracing it cannot look:
every attention gets a mask of batch × length² elements in each layer, and with it a kernel that
rounds otherwise. Position ids that count from somewhere on (`arange`, moved, viewed, repeated for
each row) hold no packed rows in any step, of any length. A mask of ones that the model makes itself
(Bart's decoder) masks nothing.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from remat_gen.capture.fx.known_values import KnownValues
from remat_gen.capture.process.replaced import replaced

LIBRARY = "transformers.masking_utils"
_PACKED = "find_packed_sequence_indices"
_IGNORED = "_ignore_causal_mask_sdpa"
_TRACING = "is_tracing"
_EXPORTING = "is_torchdynamo_exporting"
# What leaves rows that count rows that count, whatever the lengths. Of others, a remainder say,
# the values at the example's lengths tell nothing of those at smaller ones.
_COUNTING = frozenset(
    """aten.arange.default aten.arange.start aten.add.Tensor aten.sub.Tensor aten.unsqueeze.default
    aten.squeeze.dim aten.expand.default aten.view.default aten._unsafe_view.default
    aten.slice.Tensor aten.alias.default aten.detach.default aten.clone.default
    aten._to_copy.default aten.repeat.default aten.ones.default aten.full.default""".split()
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
    """Watch what transformers asks of position ids, and say that masks of ones mask nothing."""
    positions = Positions()
    library = sys.modules.get(LIBRARY)
    find = getattr(library, _PACKED, None)
    if find is None:
        yield positions
        return
    with KnownValues(_COUNTING, _counts) as counting, _never_exported(library):

        def look(position_ids: torch.Tensor) -> object:
            positions.looks.append(counting.holds(position_ids, lambda ids: find(ids) is None))
            return find(position_ids)

        ignored: Any = getattr(library, _IGNORED, None)

        def ignore(padding_mask: torch.Tensor | None, *rest: object, **others: object) -> object:
            nothing = padding_mask is None or counting.holds(padding_mask, lambda m: bool(m.all()))
            return ignored(None if nothing else padding_mask, *rest, **others)

        with replaced(library, _PACKED, look), contextlib.ExitStack() as stack:
            if ignored is not None:
                stack.enter_context(replaced(library, _IGNORED, ignore))
            yield positions


@contextlib.contextmanager
def masks_of_eager(positions: Positions) -> Iterator[None]:
    """Let transformers leave causal masks to the kernel while a model is traced, as in eager mode.

    It makes masks for what is exported, since a program may be given a cache or one token later.
    A planned module is not: it refuses other shapes.
    """
    library = sys.modules.get(LIBRARY)
    with _never_exported(library), contextlib.ExitStack() as stack:
        if hasattr(library, _TRACING):
            stack.enter_context(replaced(library, _TRACING, _traced_padding))
        if positions.plain:
            stack.enter_context(replaced(library, _PACKED, lambda _position_ids: None))
        yield


def _never_exported(library: Any) -> contextlib.AbstractContextManager[object]:
    asked = hasattr(library, _EXPORTING)
    return replaced(library, _EXPORTING, lambda: False) if asked else contextlib.nullcontext()


def _counts(made: torch.Tensor, read: list[torch.Tensor]) -> bool:
    return len(read) < 2 and not (made.is_floating_point() and read)


@contextlib.contextmanager
def answered_no() -> Iterator[None]:
    """Tell transformers that nothing traces it, so that it looks at values as in a plain step."""
    with contextlib.ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("transformers.") and _TRACING in vars(module):
                stack.enter_context(replaced(module, _TRACING, lambda _tensor=None: False))
        yield


def _traced_padding(mask: torch.Tensor | None = None) -> bool:
    """Tell that a mask has no values; transformers before 5.18 asks even where there is none."""
    return mask is not None
