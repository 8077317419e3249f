"""When garbage is looked for: less often while a model is traced, at once where a trace failed.

Tracing makes millions of objects that stay, and Python looks through them again and again: up to
a quarter of the processor time of tracing a GPT of 48 layers (docs/findings/trace.md).
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch

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


def drop_frames(error: BaseException) -> None:
    """Let go of all that the frames of a failed trace hold, and leave the dispatcher as it is.

    A guard of `torch.func` among it puts the dispatcher back to where it was amid the trace when
    it is collected, whenever that is: from then on operators would not see `vmap`.
    """
    included = torch._C._dispatch_tls_local_include_set()
    excluded = torch._C._dispatch_tls_local_exclude_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded):
        raised: BaseException | None = error
        while raised is not None:
            traceback.clear_frames(raised.__traceback__)
            raised = raised.__cause__ or raised.__context__
        gc.collect(1)  # with so few collections nothing of a trace is older


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
