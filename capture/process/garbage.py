"""Look for garbage less often while a model is traced, and not among what libraries have made.

Tracing makes millions of objects that stay, and Python looks through them again and again: up to
a quarter of the processor time of tracing a GPT of 48 layers (docs/findings/trace.md).
"""

from __future__ import annotations

import gc
import sys
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


class _Libraries:
    """Whether what libraries have made may be left alone: a program decides that, no library."""

    left_alone = False


def leave_libraries_alone() -> None:
    """Let `libraries_are_loaded` keep what is there by then out of all searches for garbage."""
    _Libraries.left_alone = True


def libraries_are_loaded() -> None:
    """Say that what comes next is the user's, whose files must be closed at the end.

    Searching torch's million objects then takes a second, the last one of each run. Triton, where
    it is there, is searched all the same: from 3.9 on it counts at the end what nobody has taken
    away, and prints fifty lines about it.
    """
    counted = "triton" in sys.modules
    if _Libraries.left_alone and not gc.get_freeze_count() and not counted:
        gc.freeze()
