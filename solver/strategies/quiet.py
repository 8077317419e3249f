"""Keep what a C library prints off standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_stdout() -> Iterator[None]:
    """Send file descriptor 1 to nowhere for a while.

    HiGHS 1.12 prints a line of debugging where it repairs a solution
    ("HighsMipSolverData::transformNewIntegerFeasibleSolution …"), whatever its log options: it
    would stand amid the output of `--json`.
    """
    if sys.stdout is not None:
        sys.stdout.flush()
    kept = os.dup(1)
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
