"""What each operation costs on the training device; stands beside the graph, keyed by operation."""

from __future__ import annotations

import math
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
    """Time (median, of the device) and the peak inside the operation beyond its outputs.

    `host_us` is what the host takes to launch it, where it runs ahead of the device. `modelled`
    marks a roofline estimate that stands where nothing could be measured. `smaller` has the lengths
    at which inputs, outputs and workspace together are more than at the example's.
    """

    time_us: float
    workspace_bytes: int
    modelled: bool = False
    smaller: tuple[Smaller, ...] = ()
    host_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs by operation name, and how the device's allocator rounds a storage.

    `captured` where steps are replayed as a CUDA graph, which the host launches as one.
    """

    device: str  # "cpu", or the name of the GPU
    operations: Mapping[str, Cost]
    alignment_bytes: int = 1  # each storage is rounded up to a multiple of this
    captured: bool = False

    @property
    def launch_bound(self) -> bool:
        """Whether a step waits for the host, which launches more slowly than the device works."""
        return not self.captured and self.host_us > self.device_us

    @property
    def host_us(self) -> float:
        """Return what the host takes to launch every operation once."""
        return math.fsum(cost.host_us for cost in self.operations.values())

    @property
    def device_us(self) -> float:
        """Return how long the device is busy with every operation once."""
        return math.fsum(cost.time_us for cost in self.operations.values())


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
