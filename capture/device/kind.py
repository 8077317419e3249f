"""What remat-gen asks of a kind of device: the interface that each of them fills in.

torch has a module per kind with functions of one shape: memory, streams, events, generators.
`torch.accelerator` has the first three for the one accelerator of a machine, and no generators,
names or properties. What no module of torch says stands here as well: which kernels eager takes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from remat_gen.capture.device.absent import UNKNOWN

_HEADROOM_BYTES = 10**9


@dataclass(frozen=True, slots=True)
class Bytes:
    """What an allocator counts: what was asked for, its blocks, and what it holds for later."""

    requested: int
    allocated: int
    reserved: int


@dataclass(frozen=True, slots=True)
class Time:
    """What a call takes, in microseconds: of the device, and of the host on its way to it.

    On the CPU both are one, and `host_us` is 0.
    """

    device_us: float
    host_us: float = 0.0


@dataclass(frozen=True, slots=True)
class DeviceKind(ABC):
    """A kind of device; `type` is torch's word for it.

    `module` is the module of torch that has its functions, as text for generated modules;
    `compiler` what torch.compile needs. Then what eager runs there: dropout as one kernel, norms
    that keep float32 statistics of 16 bits, RNNs as one kernel, cuDNN's norms and attention, sums
    in any order. `has_graphs` where a step can be captured.
    """

    type: str
    module: str
    compiler: str
    alignment_bytes: int  # the allocator rounds a storage up to a multiple of it
    rng_state_bytes: int
    autograd_key: torch._C.DispatchKey
    autocast_key: torch._C.DispatchKey
    is_accelerator: bool = False
    has_fused_dropout: bool = False
    has_float_statistics: bool = False
    has_fused_rnns: bool = False
    has_cudnn: bool = False
    has_graphs: bool = False
    adds_in_any_order: bool = False
    dies_of_assertions: bool = False  # a kernel that asserts ends all: there is no second try
    counts_memory: bool = False  # `bytes_now`, `bytes_at_most` are there

    @abstractmethod
    def count(self) -> int:
        """Return how many devices of the kind there are."""

    @abstractmethod
    def name(self, device: torch.device) -> str:
        """Return what plans call a device."""

    def capability(self, device: torch.device) -> tuple[int, int]:
        """Return the number by which eager chooses kernels there, if the kind has one."""
        return UNKNOWN

    @abstractmethod
    def memory_bytes(self, device: torch.device) -> int:
        """Return how much memory a device has."""

    @abstractmethod
    def synchronise(self, device: torch.device) -> None:
        """Wait until a device has done all its work."""

    @abstractmethod
    def free_unused(self) -> None:
        """Give back what the allocator keeps for later."""

    @abstractmethod
    def refuse_uncounted(self) -> None:
        """Refuse an allocator whose bytes cannot be counted.

        Raises:
            UsageError: PyTorch was told to use one.
        """

    @abstractmethod
    def rng_state(self, device: torch.device) -> torch.Tensor:
        """Return the state of a device's global generator, a tensor on the CPU."""

    @abstractmethod
    def rng_states(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the name of each device that was used, and its global generator's state."""

    @abstractmethod
    def kept_generators(self) -> AbstractContextManager[None]:
        """Put the state of every global generator of the kind back at the end."""

    def bytes_now(self, device: torch.device) -> Bytes:
        """Return what a device has allocated, if the kind counts."""
        raise NotImplementedError

    def bytes_at_most(self, device: torch.device) -> Bytes:
        """Return the most since `forget_peaks`, if the kind counts."""
        raise NotImplementedError

    def forget_peaks(self, device: torch.device) -> None:
        """Begin to look for peaks anew, if the kind counts."""
        raise NotImplementedError

    def headroom_bytes(self, device_bytes: int) -> int:
        """Return what to leave free of so much memory, for what no allocator counts."""
        return _HEADROOM_BYTES

    def beyond_caches_bytes(self, device: torch.device) -> int:
        """Return how many bytes are more than a device's caches hold.

        With an eighth of it, products and sums stay too quick on the CPU.
        """
        return 1 << 26

    @abstractmethod
    def wake(self, device: torch.device) -> None:
        """Keep a device busy until its clocks are up."""

    def times(
        self,
        call: Callable[[], object],
        device: torch.device,
        repeats: int,
        prepare: Callable[[], object],
        once_us: float,
    ) -> list[Time]:
        """Return what a call takes, each time; `prepare` goes before it, `once_us` is a guess."""
        return [Time(self.clock_us(call, device, prepare)) for _ in range(repeats)]

    def clock_us(
        self,
        call: Callable[[], object],
        device: torch.device,
        prepare: Callable[[], object] = lambda: None,
    ) -> float:
        """Return the wall time of a call in microseconds, the device idle before and after.

        What the call returns is freed outside of the measured time.
        """
        prepare()
        self.synchronise(device)
        start_ns = time.perf_counter_ns()
        result = call()
        self.synchronise(device)
        elapsed_ns = time.perf_counter_ns() - start_ns
        del result
        return elapsed_ns / 1e3
