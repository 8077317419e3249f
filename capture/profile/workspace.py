"""The peak inside single operations: CPU allocation events, or the allocator's counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.profile.memory_events import recorded_memory

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
    kind, found = kind_of(device), {}
    if not kind.counts_memory:
        return _inside_bytes_of_events(runs, refusals)
    for name, prepare in runs.items():
        try:
            found[name] = _inside_bytes(prepare(), device)
        except refusals:
            kind.free_unused()
    return found


def _inside_bytes_of_events(
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


def _inside_bytes(call: Callable[[], object], device: torch.device) -> int:
    kind = kind_of(device)
    kind.synchronise(device)
    kind.forget_peaks(device)
    before = kind.bytes_now(device)
    result = call()
    kind.synchronise(device)
    highest = kind.bytes_at_most(device)
    del result
    return highest.requested - before.requested
