"""What a step allocates in blocks of 512 bytes, as plans count it."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch

from simulated_gpu.library import rounded_bytes


def peak_in_blocks(step: Callable[[], object]) -> int:
    """Return the peak of a second step above what is there before or after it, in bytes."""
    step()
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    before = rounded_bytes()[0]
    step()
    peak = rounded_bytes()[1]
    gc.collect()
    return peak - max(before, rounded_bytes()[0])
