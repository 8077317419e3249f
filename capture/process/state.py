"""Put back what tracing leaves in place of a model's parameters and buffers.

Torch exchanges the state of a module by name (`torch.func.functional_call`, the tracer itself). It
exchanges that of a module with two names twice, and puts back the replacement.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn

from remat_gen.capture.process.replaced import kept_dicts

OF_PARAMETERS = frozenset(("_flat_weights", "_flat_weight_refs"))
"""What nn.RNNBase makes of its parameters, anew where these are others."""


@contextlib.contextmanager
def kept_state(model: nn.Module) -> Iterator[None]:
    """Leave each module of `model` with the parameters and buffers that it has now."""
    tables: list[dict[str, Any]] = [t for m in model.modules() for t in (m._parameters, m._buffers)]
    flat = [(m, list(m._flat_weights)) for m in model.modules() if isinstance(m, nn.RNNBase)]
    with kept_dicts(*tables):
        try:
            yield
        finally:
            for rnn, weights in flat:
                rnn._flat_weights = weights
