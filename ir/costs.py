"""What each operation costs on the training device; stands beside the graph, keyed by operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Smaller:
    """What an operation takes at smaller `lengths` than the example's, in the order of the graph's.

    `workspace_bytes` is the peak inside it beyond its outputs there.
    """

    lengths: tuple[int, ...]
    workspace_bytes: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Time (median, device-synchronised) and the peak inside the operation beyond its outputs.

    `modelled` marks a roofline estimate that stands where nothing could be measured. `smaller` has
    the lengths at which inputs, outputs and workspace together are more than at the example's.
    """

    time_us: float
    workspace_bytes: int
    modelled: bool = False
    smaller: tuple[Smaller, ...] = ()


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs by operation name, and how the device's allocator rounds a storage."""

    device: str  # "cpu", or the name of the GPU
    operations: Mapping[str, Cost]
    alignment_bytes: int = 1  # each storage is rounded up to a multiple of this


@dataclass(frozen=True, slots=True)
class PartCost:
    """What operations take that stand together: one by one, and as one compiled function.

    `workspace_bytes` is the peak inside the function beyond its results. `refused` says why it is
    not compiled whatever it takes; it is "" otherwise.
    """

    apart_us: float
    time_us: float
    workspace_bytes: int
    refused: str = ""
