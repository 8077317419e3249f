"""The shared library in this process, and what it counts."""

from __future__ import annotations

import ctypes
from pathlib import Path

from simulated_gpu.build import torch_folder

_loaded: list[ctypes.CDLL] = []


def load(path: Path) -> None:
    """Load the library and, before it, those of torch that it needs."""
    folder = torch_folder()
    assert folder is not None
    for name in ("libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(folder / "lib" / name), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    library.sim_current_stream.restype = library.sim_events.restype = ctypes.c_int64
    library.sim_events.argtypes = [ctypes.c_char_p, ctypes.c_int64]
    library.sim_set_stream.argtypes = [ctypes.c_int, ctypes.c_int64]
    library.sim_fraction.restype = ctypes.c_double
    library.sim_set_fraction.argtypes = [ctypes.c_double, ctypes.c_int]
    _loaded.append(library)


def is_simulated() -> bool:
    """Say whether this process has a simulated GPU."""
    return bool(_loaded)


def library() -> ctypes.CDLL:
    """Return the library."""
    return _loaded[0]


def pair(function: str, device: int) -> tuple[int, int]:
    """Return the two numbers that a function of the library says of a device."""
    numbers = (ctypes.c_int64 * 2)()
    getattr(library(), function)(device, numbers)
    return numbers[0], numbers[1]


def rounded_bytes(device: int = 0) -> tuple[int, int]:
    """Return the bytes in blocks of 512, current and peak.

    `allocated_bytes` counts as well what is left unused at the end of a large block, up to 1 MiB.
    """
    return pair("sim_rounded_bytes", device)
