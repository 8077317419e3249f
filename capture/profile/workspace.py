"""The peak inside single operations: CPU allocation events, or the CUDA allocator's statistics."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch

from remat_gen.capture.profile.memory_events import recorded_memory
from remat_gen.ir.errors import UsageError

_UNCACHED = "PYTORCH_NO_CUDA_MEMORY_CACHING"

# Makes the inputs, and returns the call that is to be watched.
Prepare: TypeAlias = Callable[[], Callable[[], object]]


def inside_bytes(
    runs: Mapping[str, Prepare],
    device: torch.device,
    refusals: tuple[type[Exception], ...] = (),
) -> dict[str, int]:
    """Return for each run the highest number of bytes allocated inside it, its outputs included.

    Only one run's inputs and outputs exist at a time. A run that raises one of `refusals`, as where
    memory is out, is left out.
    """
    if device.type != "cuda":
        return _inside_bytes_cpu(runs, refusals)
    found = {}
    for name, prepare in runs.items():
        try:
            found[name] = _inside_bytes_cuda(prepare(), device)
        except refusals:
            free_unused(device)
    return found


def _inside_bytes_cpu(
    runs: Mapping[str, Prepare], refusals: tuple[type[Exception], ...]
) -> dict[str, int]:
    refused = set()
    with recorded_memory() as recording:  # starting it costs more than many operations: once
        for name, prepare in runs.items():
            try:
                call = prepare()
                with recording.mark(name):
                    result = call()
                del result, call
            except refusals:
                refused.add(name)
    return {
        span.name: span.highest_bytes - span.before_bytes
        for span in recording.spans
        if span.name not in refused
    }


def refuse_other_allocators(device: torch.device) -> None:
    """Refuse an allocator of a GPU that does not count the bytes that are asked of it.

    Raises:
        UsageError: PyTorch was told to use another one than its own.
    """
    if device.type != "cuda":
        return
    if torch.cuda.get_allocator_backend() != "native" or os.environ.get(_UNCACHED):
        raise UsageError(
            f"memory cannot be measured with this allocator: unset {_UNCACHED}, and "
            "backend:cudaMallocAsync in PYTORCH_CUDA_ALLOC_CONF"
        )


def free_unused(device: torch.device) -> None:
    """Give back what the allocator of a GPU keeps for later; the CPU's keeps nothing."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _inside_bytes_cuda(call: Callable[[], object], device: torch.device) -> int:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before: int = torch.cuda.memory_stats(device)["requested_bytes.all.current"]
    result = call()
    torch.cuda.synchronize(device)
    highest: int = torch.cuda.memory_stats(device)["requested_bytes.all.peak"]
    del result
    return highest - before
