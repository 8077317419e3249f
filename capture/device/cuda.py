"""NVIDIA's GPUs: a queue that the host runs ahead of, a caching allocator, kernels of cuDNN."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from remat_gen.capture.device.absent import UNKNOWN
from remat_gen.capture.device.kind import Bytes, DeviceKind, Time
from remat_gen.ir.errors import UsageError

_UNCACHED = "PYTORCH_NO_CUDA_MEMORY_CACHING"
_COUNTED = ("requested", "allocated", "reserved")
_HEAD_START_CYCLES = 200_000  # some 0.1 ms: longer than the host takes for most operations
_CYCLES_PER_US = 4_000  # twice as many as there are
_LONGEST_HOST_US = 10_000.0  # what takes longer keeps the device busy, not the host
_AWAKE_S = 0.3  # an idle GPU runs at a sixth of its clock


class Cuda(DeviceKind):
    """What torch.cuda drives."""

    __slots__ = ()

    def count(self) -> int:
        """Return how many PyTorch sees."""
        return torch.cuda.device_count() if torch.cuda.is_available() else 0

    def name(self, device: torch.device) -> str:
        """Return the maker's name for it."""
        return torch.cuda.get_device_name(device)

    def capability(self, device: torch.device) -> tuple[int, int]:
        """Return NVIDIA's compute capability; AMD's numbers mean others' kernels."""
        return UNKNOWN if torch.version.hip else torch.cuda.get_device_capability(device)

    def memory_bytes(self, device: torch.device) -> int:
        """Return its own memory."""
        return int(torch.cuda.get_device_properties(device).total_memory)

    def synchronise(self, device: torch.device) -> None:
        """Wait for all its streams."""
        torch.cuda.synchronize(device)

    def free_unused(self) -> None:
        """Empty the caching allocator's cache."""
        torch.cuda.empty_cache()

    def refuse_uncounted(self) -> None:
        """Refuse allocators that do not count the bytes that are asked of them.

        Raises:
            UsageError: PyTorch was told to use another one than its own.
        """
        if torch.cuda.get_allocator_backend() != "native" or os.environ.get(_UNCACHED):
            raise UsageError(
                f"memory cannot be measured with this allocator: unset {_UNCACHED}, and "
                "backend:cudaMallocAsync in PYTORCH_ALLOC_CONF (PYTORCH_CUDA_ALLOC_CONF before 2.9)"
            )

    def bytes_now(self, device: torch.device) -> Bytes:
        """Return the allocator's counts."""
        return _counted(device, "current")

    def bytes_at_most(self, device: torch.device) -> Bytes:
        """Return the highest of each count; they may be of different moments."""
        return _counted(device, "peak")

    def forget_peaks(self, device: torch.device) -> None:
        """Set the highest of each count to what it is now."""
        torch.cuda.reset_peak_memory_stats(device)

    def headroom_bytes(self, device_bytes: int) -> int:
        """Return 1 GB and a twentieth.

        The context takes half a gigabyte, cuBLAS 32 MiB in each of two threads on Hopper, and the
        allocator's segments are up to a third more than the blocks in them in small models.
        """
        return 10**9 + device_bytes // 20

    def beyond_caches_bytes(self, device: torch.device) -> int:
        """Return four times the second-level cache, and no less than elsewhere."""
        cache = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
        return max(1 << 26, 4 * int(cache))

    def wake(self, device: torch.device) -> None:
        """Multiply until the clocks are up."""
        factor, start = torch.zeros(1024, 1024, device=device), time.perf_counter()
        while time.perf_counter() - start < _AWAKE_S:
            factor @ factor
            torch.cuda.synchronize(device)

    def times(
        self,
        call: Callable[[], object],
        device: torch.device,
        repeats: int,
        prepare: Callable[[], object],
        once_us: float,
    ) -> list[Time]:
        """Time by events on the stream, which is kept busy while the host is on its way."""
        cycles = max(_HEAD_START_CYCLES, int(_CYCLES_PER_US * min(once_us, _LONGEST_HOST_US)))
        found = []
        with torch.cuda.device(device):
            for _ in range(repeats):
                prepare()
                torch.cuda._sleep(cycles)
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                start_ns = time.perf_counter_ns()
                call()
                host_us = (time.perf_counter_ns() - start_ns) / 1e3
                end.record()
                found.append((start, end, host_us))
            torch.cuda.synchronize(device)
        return [Time(start.elapsed_time(end) * 1e3, host_us) for start, end, host_us in found]

    def rng_state(self, device: torch.device) -> torch.Tensor:
        """Return a seed and an offset."""
        return torch.cuda.get_rng_state(device)

    def rng_states(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield those of all devices, once one was used."""
        if torch.cuda.is_initialized():
            for i, state in enumerate(torch.cuda.get_rng_state_all()):
                yield f"{self.type}:{i}", state

    @contextmanager
    def kept_generators(self) -> Iterator[None]:
        """Put all states back at the end.

        Where nothing has used a GPU yet, `torch.manual_seed` leaves the seed to whoever does first:
        that is put back, too.
        """
        used = torch.cuda.is_initialized()
        left = dict(vars(torch.cuda._lazy_seed_tracker))
        states = torch.cuda.get_rng_state_all() if used else []
        try:
            yield
        finally:
            torch.cuda.set_rng_state_all(states)
            vars(torch.cuda._lazy_seed_tracker).update(left)
            if torch.cuda.is_initialized() and not used:
                _seed_as_left()


def _counted(device: torch.device, moment: str) -> Bytes:
    found = torch.cuda.memory_stats(device)
    return Bytes(*(int(found[f"{kind}_bytes.all.{moment}"]) for kind in _COUNTED))


def _seed_as_left() -> None:
    """Seed GPUs that were used for the first time as if that were now."""
    torch.cuda.manual_seed_all(torch.Generator().initial_seed())  # what nobody has seeded
    for seeds in torch.cuda._lazy_seed_tracker.get_calls():
        if seeds:
            seeds[0]()


CUDA = Cuda(
    type="cuda",
    module="torch.cuda",
    compiler="Triton",
    alignment_bytes=512,  # c10/cuda/CUDACachingAllocator: kMinBlockSize
    rng_state_bytes=16,
    autograd_key=torch._C.DispatchKey.AutogradCUDA,
    autocast_key=torch._C.DispatchKey.AutocastCUDA,
    is_accelerator=True,
    has_fused_dropout=True,
    has_float_statistics=True,
    has_fused_rnns=True,
    has_cudnn=True,
    has_graphs=True,
    adds_in_any_order=True,
    dies_of_assertions=True,
    counts_memory=True,
)
