"""Devices that are planned for without being there: their rates, from a table or a user's file.

    [my_gpu]
    name = "NVIDIA H200"
    device = "cuda"
    memory_bytes = 150_000_000_000
    alignment_bytes = 512
    launch_us = 4.1
    bytes_per_s = 4.1e12
    drawn_per_s = 8.0e11
    host_bytes_per_s = 5.2e10
    compute_capability = [9, 0]
    source = "measured by remat-gen calibrate"

    [my_gpu.flops_per_s]
    float32 = 5.1e13
    bfloat16 = 7.2e14

`remat-gen calibrate` writes such a file.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path

from remat_gen.capture.device.absent import UNKNOWN, AbsentDevice
from remat_gen.capture.device.kinds import TYPES
from remat_gen.capture.profile.roofline import Rates
from remat_gen.ir.errors import UsageError

TABLE = Path(__file__).with_name("targets.toml")
_MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a device has and sustains: `flops_per_s` by dtype, `device` is torch's word for it.

    `drawn_per_s` are random numbers; without it they are drawn as fast as they are written.
    `host_bytes_per_s` are copied from pinned memory of the host, or to it; 0 where it is unknown.
    By `compute_capability` eager chooses kernels on a GPU.
    """

    name: str
    device: str
    memory_bytes: int
    alignment_bytes: int
    launch_us: float
    bytes_per_s: float
    flops_per_s: Mapping[str, float]
    source: str
    drawn_per_s: float = math.inf
    host_bytes_per_s: float = 0.0
    compute_capability: tuple[int, int] = UNKNOWN

    @property
    def absent(self) -> AbsentDevice:
        """Return the device as what a model is traced for."""
        return AbsentDevice(self.device, self.compute_capability)

    @property
    def rates(self) -> Rates:
        """Return the rates for the roofline; a dtype that has none takes as long as the slowest."""
        by_dtype = {dtype: rate / _MICROSECONDS for dtype, rate in self.flops_per_s.items()}
        return Rates(
            flops_per_us=min(by_dtype.values()),
            bytes_per_us=self.bytes_per_s / _MICROSECONDS,
            launch_us=self.launch_us,
            by_dtype=by_dtype,
            drawn_per_us=self.drawn_per_s / _MICROSECONDS,
        )


_RATES = "flops_per_s"
_CAPABILITY = "compute_capability"
_KEYS = tuple(field.name for field in fields(Hardware))
_RARE = ("drawn_per_s", "host_bytes_per_s")
_NEEDED = tuple(field.name for field in fields(Hardware) if field.default is MISSING)


def find_target(text: str) -> Hardware:
    """Return the device that `--target` names: one of the table, or the one in a TOML file.

    Raises:
        UsageError: there is no such device or file, or the file says what cannot be.
    """
    known = read_targets(TABLE)
    if text in known:
        return known[text]
    path = Path(text)
    if path.suffix != ".toml":
        raise UsageError(
            f"--target {text}: known are {', '.join(known)}; or give a .toml file, which "
            "`remat-gen calibrate` writes"
        )
    found = read_targets(path)
    if len(found) != 1:
        raise UsageError(f"{path}: has {len(found)} targets; a file that is given has one")
    return next(iter(found.values()))


def read_targets(path: Path) -> dict[str, Hardware]:
    """Return the devices in a TOML file by the names of their tables.

    Raises:
        UsageError: there is no such file, or it says what cannot be; the message names the key.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such target file") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is no TOML: {error}") from error
    return {name: _hardware(path, name, table) for name, table in tables.items()}


def _hardware(path: Path, name: str, table: object) -> Hardware:
    where = f"{path}: {name}"
    if not isinstance(table, dict):
        raise UsageError(f"{where}: is {table!r}; write a table: [{name}]")
    for key in _NEEDED:
        if key not in table:
            raise UsageError(f"{where}: has no {key}; `remat-gen calibrate` writes all of it")
    if unknown := [key for key in table if key not in _KEYS]:
        known = ", ".join(_KEYS)
        raise UsageError(f"{where}: has an unknown key {unknown[0]!r}; known are {known}")
    rates = table[_RATES]
    if not isinstance(rates, dict) or not rates:
        raise UsageError(f"{where}.{_RATES}: is {rates!r}; write a rate by dtype: float32 = 67e12")
    return Hardware(
        name=_text(where, "name", table["name"]),
        device=_text(where, "device", table["device"]),
        memory_bytes=_whole(where, "memory_bytes", table["memory_bytes"]),
        alignment_bytes=_whole(where, "alignment_bytes", table["alignment_bytes"]),
        launch_us=_number(where, "launch_us", table["launch_us"]),
        bytes_per_s=_number(where, "bytes_per_s", table["bytes_per_s"]),
        source=_text(where, "source", table["source"]),
        **{k: _number(where, k, table[k]) for k in _RARE if k in table},
        compute_capability=_capability(where, table.get(_CAPABILITY, list(UNKNOWN))),
        flops_per_s={k: _number(f"{where}.{_RATES}", k, rate) for k, rate in rates.items()},
    )


def _text(where: str, key: str, value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or '"' in value:
        raise UsageError(f'{where}.{key}: is {value!r}; write a text: {key} = "…"')
    if key == "device" and value not in TYPES:
        raise UsageError(f"{where}.{key}: is {value!r}; known are {', '.join(TYPES)}")
    return value


def _capability(where: str, value: object) -> tuple[int, int]:
    if isinstance(value, list) and len(value) == 2 and all(type(n) is int for n in value):
        return value[0], value[1]
    raise UsageError(f"{where}.{_CAPABILITY}: is {value!r}; write two numbers: [9, 0]")


def _whole(where: str, key: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise UsageError(f"{where}.{key}: is {value!r}; write a whole number above 0")
    return value


def _number(where: str, key: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number) and number > 0:
            return number
    raise UsageError(f"{where}.{key}: is {value!r}; write a number above 0")
