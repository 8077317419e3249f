"""Measure what a device sustains, and write it down as a target (see `targets.py`).

Rates are those of one large call each, the median of repeats: the matrix product in each dtype that
the device multiplies, a copy for the memory, a mask of dropout for random numbers, and an operation
on one element for the launch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from remat_gen.capture.as_eager.dropout import dropout_mask
from remat_gen.capture.device.absent import UNKNOWN
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.process.generators import kept_generators
from remat_gen.capture.profile.targets import Hardware
from remat_gen.capture.profile.timing import Effort, median_time_us

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_EFFORT = Effort(fewest=3, most=50, enough_us=200_000.0)
_DIGITS = 3  # what measurement leaves
_SECOND_US = 1e6
_SLOWEST = 0.01  # of the fastest rate: below it a dtype is emulated, and nobody trains in it


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How large the calls are: large enough to be bound by what they measure."""

    side: int  # of the square matrices that are multiplied
    copied_bytes: int  # far more than the caches hold
    drawn: int  # random numbers


_OF_GPU = _Sizes(side=8192, copied_bytes=1 << 30, drawn=1 << 27)
_OF_CPU = _Sizes(side=512, copied_bytes=1 << 26, drawn=1 << 20)


def calibrate(device: torch.device) -> Hardware:
    """Measure a device; takes a few seconds."""
    sizes = _OF_GPU if kind_of(device).is_accelerator else _OF_CPU
    kind_of(device).wake(device)
    rates = {str(dtype).removeprefix("torch."): _product(dtype, sizes, device) for dtype in DTYPES}
    fastest = max(rates.values())
    one = torch.ones(1, device=device)
    return Hardware(
        name=_name(device),
        device=device.type,
        memory_bytes=kind_of(device).memory_bytes(device),
        alignment_bytes=kind_of(device).alignment_bytes,
        launch_us=_round(median_time_us(lambda: one + one, device, _EFFORT)),
        bytes_per_s=_moved(sizes, device),
        flops_per_s={name: rate for name, rate in rates.items() if rate >= _SLOWEST * fastest},
        drawn_per_s=_drawn(sizes, device),
        host_bytes_per_s=host_bytes_per_s(device, sizes.copied_bytes),
        compute_capability=kind_of(device).capability(device),
        source=f"measured by remat-gen calibrate, torch {str(torch.__version__).partition('+')[0]}",
    )


def _moved(sizes: _Sizes, device: torch.device) -> float:
    """Return the rate of a copy in bytes a second: each is read and written."""
    block = torch.ones(sizes.copied_bytes, dtype=torch.uint8, device=device)
    into = torch.empty_like(block)
    time_us = median_time_us(lambda: into.copy_(block), device, _EFFORT)
    return _round(2 * block.numel() / time_us * _SECOND_US)


def host_bytes_per_s(device: torch.device, nbytes: int = 1 << 28) -> float:
    """Return the rate of a copy between a device and pinned memory, of the slower direction."""
    block = torch.ones(nbytes, dtype=torch.uint8, device=device)
    host = torch.empty(nbytes, dtype=torch.uint8, pin_memory=kind_of(device).is_accelerator)
    ways = (lambda: host.copy_(block), lambda: block.copy_(host))
    slower_us = max(median_time_us(way, device, _EFFORT) for way in ways)
    return _round(nbytes / slower_us * _SECOND_US)


def copy_start_us(device: torch.device) -> float:
    """Return how long a copy to the host takes that has next to nothing to copy."""
    one = torch.ones(1, dtype=torch.uint8, device=device)
    host = torch.empty(1, dtype=torch.uint8, pin_memory=kind_of(device).is_accelerator)
    return _round(median_time_us(lambda: host.copy_(one), device, _EFFORT))


def _drawn(sizes: _Sizes, device: torch.device) -> float:
    """Return how many elements of a dropout's mask are drawn in a second; no stream moves."""
    size, stride = (sizes.drawn,), (1,)
    with kept_generators():
        time_us = median_time_us(lambda: dropout_mask(size, stride, 0.9, device), device, _EFFORT)
    return _round(sizes.drawn / time_us * _SECOND_US)


def _product(dtype: torch.dtype, sizes: _Sizes, device: torch.device) -> float:
    """Return the rate of a matrix product in operations a second; 0 where there is no kernel."""
    try:
        generator = torch.Generator(device).manual_seed(0)  # ones would be multiplied quicker
        drawn = torch.randn(sizes.side, sizes.side, device=device, generator=generator)
        factor = drawn.to(dtype)
        time_us = median_time_us(lambda: factor @ factor, device, _EFFORT)
    except RuntimeError:  # "not implemented for 'Half'", and the like
        return 0.0
    return _round(2 * sizes.side**3 / time_us * _SECOND_US)


def _name(device: torch.device) -> str:
    """Return the device's name; the CPU's would tell whose machine it is."""
    return "CPU" if device.type == "cpu" else kind_of(device).name(device)


def _round(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")


def _capability(found: Hardware) -> list[str]:
    known = found.compute_capability != UNKNOWN
    return [f"compute_capability = {list(found.compute_capability)}"] * known


def target_text(name: str, found: Hardware) -> str:
    """Return a device as TOML, as `targets.read_targets` reads it; the same for the same rates."""
    lines = [
        f"[{name}]",
        f'name = "{found.name}"',
        f'device = "{found.device}"',
        f"memory_bytes = {found.memory_bytes}",
        f"alignment_bytes = {found.alignment_bytes}",
        f"launch_us = {found.launch_us}",
        f"bytes_per_s = {_number(found.bytes_per_s)}",
        f"drawn_per_s = {_number(found.drawn_per_s)}",
        f"host_bytes_per_s = {_number(found.host_bytes_per_s)}",
        *_capability(found),
        f'source = "{found.source}"',
        "",
        f"[{name}.flops_per_s]",
        *(f"{dtype} = {_number(rate)}" for dtype, rate in sorted(found.flops_per_s.items())),
    ]
    return "\n".join(lines) + "\n"


def table_name(path: Path) -> str:
    """Return the name of the table in a file: its own, in letters that TOML takes bare."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in path.stem) or "target"


def _number(number: float) -> str:
    """Write a rate as people do: `9.89e14`."""
    power = math.floor(math.log10(number))
    return f"{number / 10**power:.{_DIGITS - 1}f}e{power}"
