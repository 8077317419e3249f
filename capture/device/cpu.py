"""The CPU: no queue, no rounding, no counts of bytes; its allocations are seen by the profiler."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager

import torch

from remat_gen.capture.device.kind import DeviceKind


class Cpu(DeviceKind):
    """The machine itself."""

    __slots__ = ()

    def count(self) -> int:
        """Return 1: there is always one."""
        return 1

    def name(self, device: torch.device) -> str:
        """Return "cpu": another name would tell whose machine it is."""
        return device.type

    def memory_bytes(self, device: torch.device) -> int:
        """Return the machine's memory."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def synchronise(self, device: torch.device) -> None:
        """Do nothing: the CPU has always done all its work."""

    def free_unused(self) -> None:
        """Do nothing: its allocator keeps nothing."""

    def refuse_uncounted(self) -> None:
        """Refuse nothing: the profiler sees every allocation."""

    def rng_state(self, device: torch.device) -> torch.Tensor:
        """Return the state of the global generator."""
        return torch.get_rng_state()

    def rng_states(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the one."""
        yield self.type, torch.get_rng_state()

    def wake(self, device: torch.device) -> None:
        """Do nothing: it runs."""

    def kept_generators(self) -> AbstractContextManager[None]:
        """Put the state of the global generator back at the end."""
        return torch.random.fork_rng(devices=())


CPU = Cpu(
    type="cpu",
    module="torch",
    compiler="a C++ compiler",
    alignment_bytes=1,
    rng_state_bytes=5056,
    autograd_key=torch._C.DispatchKey.AutogradCPU,
    autocast_key=torch._C.DispatchKey.AutocastCPU,
)
