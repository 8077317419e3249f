"""Trace `torch.distributions` without the checks of their arguments' values.

Each of them asks whether a tensor lies in its domain, an answer that no trace can wait for. The
numbers are the same without; a planned step does not raise where eager's would.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch.distributions import Distribution

from remat_gen.capture.process.replaced import replaced


def unvalidated() -> AbstractContextManager[None]:
    """Make distributions unchecked, but where `validate_args=True` is said."""
    return replaced(Distribution, "_validate_args", False)
