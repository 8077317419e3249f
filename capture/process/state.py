"""Put back what tracing leaves in place of a model's parameters and buffers.

Torch exchanges the state of a module by name (`torch.func.functional_call`, the tracer itself). It
exchanges that of a module with two names twice, and puts back the replacement.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn

OF_PARAMETERS = frozenset(("_flat_weights", "_flat_weight_refs"))
"""What nn.RNNBase makes of its parameters, anew where these are others."""


@contextlib.contextmanager
def kept_state(model: nn.Module) -> Iterator[None]:
    """Leave each module of `model` with the parameters and buffers that it has now."""
    holders: list[dict[str, Any]] = [
        held for m in model.modules() for held in (m._parameters, m._buffers)
    ]
    before = [dict(held) for held in holders]
    flat = [(m, list(m._flat_weights)) for m in model.modules() if isinstance(m, nn.RNNBase)]
    try:
        yield
    finally:
        for rnn, weights in flat:
            rnn._flat_weights = weights
        for held, kept in zip(holders, before, strict=True):
            held.clear()
            held.update(kept)
