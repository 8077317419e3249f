"""Does the original's own step repeat itself? Asked while planning, where it fits into memory.

What it reads was told by runs on fake tensors (`capture/observe/repeats.py`); values show here.
On the CPU every bit counts; on a GPU additions in any order are no news.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from remat_gen.capture.load.load import Loaded
from remat_gen.capture.process.generators import kept_generators
from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.process.values import lack_values
from remat_gen.ir.byte_text import size
from remat_gen.ir.errors import TraceError, said
from remat_gen.verification.compare import Comparison, Match, compare_steps
from remat_gen.verification.noise import noise_of_repeats
from remat_gen.verification.outcome import State, run_steps
from remat_gen.verification.repeated_steps import told

_COPIES = 6  # of the state: the model's, its copy, gradients, and what two runs are compared by


@dataclass(frozen=True, slots=True)
class Need:
    """What it takes to run the original's step, and whether that is there."""

    nbytes: int
    fits: bool


def need_to_run(loaded: Loaded, eager_peak_bytes: int) -> Need | None:
    """Return what the original's step needs; None where planning does not run it: off the CPU."""
    state = [*loaded.model.parameters(), *loaded.model.buffers()]
    if loaded.device.type != "cpu" or lack_values(state):
        return None
    need = eager_peak_bytes + _COPIES * sum(t.nbytes for t in state)
    return Need(need, need <= _available_bytes() // 2)


@contextlib.contextmanager
def kept_original(loaded: Loaded) -> Iterator[State]:
    """Have the model's state and gradients as they were when its step has been run."""
    model, state = loaded.model, State.of(loaded.model)
    gradients = [(p, p.grad) for p in model.parameters()]  # a model may be given as it is trained
    try:
        with loaded.importable(), kept_generators(), quiet():
            yield state
    finally:
        state.restore(model)
        for parameter, gradient in gradients:
            parameter.grad = gradient


def run_twice(loaded: Loaded, eager_peak_bytes: int) -> str:
    """Run the original's step twice on the CPU; return what there is to say of that, mostly "".

    Raises:
        TraceError: the second run is off by more than additions in another order explain.
    """
    need = need_to_run(loaded, eager_peak_bytes)
    if need is None:
        return ""
    if not need.fits:
        needed = size(need.nbytes)
        return f"was not run twice: it needs {needed}; whether it repeats itself is not known"
    try:
        unlike = _unlike(loaded)
    except Exception as error:  # of the user's own code
        return f"has a step of its own that fails: {type(error).__name__}: {said(error)[:200]}"
    if any(c.match is Match.DIFFERENT for c in unlike):
        raise TraceError(f"the original does not repeat itself: {told(unlike[0], loaded.device)}")
    return f"does not repeat itself to the bit: {told(unlike[0], loaded.device)}" if unlike else ""


def _unlike(loaded: Loaded) -> list[Comparison]:
    """Compare two runs of one step; return what is not the same bits."""
    with kept_original(loaded) as state:
        once, again = (
            run_steps(loaded.model, state, loaded.args, loaded.kwargs, steps=1, seed=0)
            for _ in range(2)
        )
    found = compare_steps(once, again, noise_of_repeats(once, again))
    return sorted((c for c in found if c.match is not Match.BITWISE), key=_worst_first)


def _worst_first(comparison: Comparison) -> bool:
    return comparison.match is not Match.DIFFERENT


def _available_bytes() -> int:
    """Return the bytes of memory that are free, as far as the system says so."""
    table = Path("/proc/meminfo")
    lines = table.read_text(encoding="utf-8").splitlines() if table.is_file() else []
    words = dict(line.split(":", 1) for line in lines)
    if "MemAvailable" in words:
        return 1024 * int(words["MemAvailable"].split()[0])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
