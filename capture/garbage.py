"""Look for garbage less often while a model is traced.

Tracing makes millions of objects that stay, and Python looks through them again and again: up to
a quarter of the processor time of tracing a GPT of 48 layers (docs/design.md).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (100_000, 50, 50)


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Raise the thresholds of the garbage collector, and put them back."""
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
