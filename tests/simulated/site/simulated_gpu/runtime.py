"""The functions of `torch._C` that a CUDA build has and `torch.cuda` calls.

They are there before torch.cuda is imported, so that all of torch.cuda is torch's own.
"""

from __future__ import annotations

import atexit
import enum
import time
from types import ModuleType, SimpleNamespace
from typing import Any

from simulated_gpu.library import library, pair

NAME = "Simulated GPU"


class DeviceProperties(SimpleNamespace):
    """What `torch.cuda.get_device_properties` returns: of Hopper's kind."""


def fill_in(c: ModuleType) -> None:
    """Add to `torch._C` what its CPU build lacks."""
    gpu = library()
    functions = {  # torch._dynamo hashes them: none is of ctypes, none comes twice
        "init": lambda: _initialise(c),
        "getDeviceCount": lambda: gpu.sim_devices(),
        "getDevice": lambda: gpu.sim_current_device(),
        "setDevice": lambda device: gpu.sim_set_device(device),
        "exchangeDevice": lambda device: _exchange(device),
        "maybeExchangeDevice": lambda device: _exchange(device),
        "isInBadFork": lambda: False,
        "synchronize": lambda: gpu.sim_synchronize(),
        "sleep": lambda cycles: None,
        "getArchFlags": lambda: "sm_90",
        "getAllocatorBackend": lambda: "native",
        "emptyCache": lambda: c._accelerator_emptyCache(),
        "memoryStats": lambda device: c._accelerator_getDeviceStats(device),
        "resetPeakMemoryStats": lambda device: c._accelerator_resetPeakStats(device),
        "resetAccumulatedMemoryStats": lambda device: c._accelerator_resetAccumulatedStats(device),
        "setMemoryFraction": lambda fraction, device: gpu.sim_set_fraction(fraction, device),
        "getMemoryFraction": lambda device: gpu.sim_fraction(device),
        "getCurrentStream": lambda device: (gpu.sim_current_stream(device), device, _CUDA),
        "getDefaultStream": lambda device: (0, device, _CUDA),
        "getCurrentRawStream": lambda device: gpu.sim_current_stream(device),
        "setStream": lambda **found: gpu.sim_set_stream(found["device_index"], found["stream_id"]),
        "isCurrentStreamCapturing": lambda: False,
    }
    for name, function in functions.items():
        setattr(c, f"_cuda_{name}", function)
    c._has_cuda = True
    c._cudart = SimpleNamespace(
        cudaError=_Error,
        cudaGetErrorString=str,
        cudaMemGetInfo=lambda device: pair("sim_memory_info", device),
    )
    c._CudaDeviceProperties = DeviceProperties
    _add_classes(c)


_CUDA = 1  # c10::DeviceType::CUDA


class _Error(enum.IntEnum):
    success = 0


def _exchange(device: int) -> int:
    before: int = library().sim_current_device()
    library().sim_set_device(device)
    return before


def _initialise(c: ModuleType) -> None:
    """Do what `torch._C._cuda_init` does: generators and properties for torch.cuda."""
    import torch

    from simulated_gpu import attention

    torch.cuda.default_generators = tuple(_generator(c, i) for i in range(library().sim_devices()))
    torch.cuda._get_device_properties = _properties
    _clone_storages(torch.UntypedStorage)
    # autograd's thread may still let go of the last backward: it needs Python for that
    atexit.register(time.sleep, 0.1)
    attention.register()


def _clone_storages(storage: Any) -> None:
    """Let storages be cloned, as copy.deepcopy does: the CPU build makes none on "cuda"."""
    import torch

    clone = storage.clone

    def cloned(self: Any) -> Any:
        if self.device.type != "cuda":
            return clone(self)
        ours = torch.empty(0, dtype=torch.uint8, device=self.device).set_(self)
        return ours.clone().untyped_storage()

    storage.clone = cloned


def _generator(c: ModuleType, device: int) -> Any:
    library().sim_next_generator_is_default()
    return c.Generator(f"cuda:{device}")


def _properties(device: int) -> DeviceProperties:
    return DeviceProperties(
        name=NAME,
        major=9,
        minor=0,
        total_memory=pair("sim_memory_info", device)[1],
        multi_processor_count=132,
        L2_cache_size=4 << 20,  # small, as copies of arguments fill it four times
        warp_size=32,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        gcnArchName="",
    )


def _add_classes(c: ModuleType) -> None:
    """Add streams and events on torch's own for any device, and graphs, which nothing captures."""

    class Stream(c.Stream):  # type: ignore[name-defined, misc]
        def __new__(cls, priority: int = 0, stream_ptr: int = 0, **found: int) -> Stream:
            given = found or {"device": f"cuda:{library().sim_current_device()}"}
            made: Stream = super().__new__(cls, **given)
            return made

        @property
        def cuda_stream(self) -> int:
            return int(self.stream_id)

    class Event:
        """One that holds torch's: some of its methods refuse what is derived from it."""

        event: Any

        def __new__(cls, enable_timing: bool = False, **_: bool) -> Event:
            made = super().__new__(cls)
            made.event = c.Event(device="cuda", enable_timing=enable_timing)
            return made

        def record(self, stream: Any) -> None:
            self.event.record(_plain(stream))

        def wait(self, stream: Any) -> None:
            self.event.wait(_plain(stream))

        def query(self) -> bool:
            return bool(self.event.query())

        def synchronize(self) -> None:
            self.event.synchronize()

        def elapsed_time(self, other: Event) -> float:
            return float(self.event.elapsed_time(other.event))

        @property
        def cuda_event(self) -> int:
            return int(self.event.event_id)

    def _plain(stream: Any) -> Any:
        found = (stream.stream_id, stream.device_index, stream.device_type)
        return c.Stream(stream_id=found[0], device_index=found[1], device_type=found[2])

    class Graph:
        def __new__(cls, *_: object, **__: object) -> Graph:
            raise NotImplementedError("the simulated GPU captures no graphs")

    c._CudaStreamBase, c._CudaEventBase, c._CUDAGraph = Stream, Event, Graph
    c._graph_pool_handle = Graph
