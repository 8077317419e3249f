"""Trace `torch.distributions` without the checks of their arguments' values.

Each of them asks whether a tensor lies in its domain, an answer that no trace can wait for. The
numbers are the same without; a planned step does not raise where eager's would.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.distributions import Distribution


@contextmanager
def unvalidated() -> Iterator[None]:
    """Make distributions unchecked, but where `validate_args=True` is said."""
    validates = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(validates)
