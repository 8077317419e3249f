"""scipy's integer programs, without what their library prints."""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scipy.optimize import milp


def quiet_milp(
    cost: Any, *, options: dict[str, Any], unasked: dict[str, Any] | None = None, **arguments: Any
) -> Any:
    """Return what `scipy.optimize.milp` returns; nothing of HiGHS's reaches standard output.

    HiGHS 1.12 prints a line of debugging where it repairs a solution
    ("HighsMipSolverData::transformNewIntegerFeasibleSolution …"), whatever its log options: it
    would stand amid a generated module that goes to standard output, or the output of `--json`.
    `unasked` are options of HiGHS's own that an older one may not have.
    """
    with quiet_stdout(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of options that scipy only passes on
        try:
            return milp(cost, options={**options, **(unasked or {})}, **arguments)
        except AttributeError:
            return milp(cost, options=options, **arguments)


@contextmanager
def quiet_stdout() -> Iterator[None]:
    """Send file descriptor 1 to nowhere for a while, with what C's own buffer holds at its end."""
    _flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is none
        yield
        return
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        yield
    finally:
        _flush()
        os.dup2(kept, 1)
        os.close(kept)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
    ctypes.CDLL("ucrtbase" if os.name == "nt" else None).fflush(None)
