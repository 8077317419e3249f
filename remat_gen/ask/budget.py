"""Read sizes and budgets as users write them, and say how a budget comes about."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from remat_gen.ir.byte_text import size
from remat_gen.ir.errors import UsageError

_UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
}
_NUMBER = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?) ?([A-Za-z]{0,3}|%)", re.ASCII)
EXAMPLES = "6GB, 1.5GiB, 512MB, 4096 (bytes)"


class Optimizer(StrEnum):
    """An optimizer, by how many copies of the trained parameters its state holds."""

    NONE = "none"
    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAM = "adam"
    ADAMW = "adamw"

    @property
    def copies(self) -> int:
        """Return the copies: Adam's two moments, the momentum buffer, or nothing."""
        return {"none": 0, "sgd": 0, "momentum": 1}.get(self.value, 2)


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on the activation peak, as it was written: bytes, or a share of the eager peak."""

    text: str
    nbytes: int | None = None
    percent: Fraction | None = None

    def resolve(self, eager_peak_bytes: int) -> int:
        """Return the limit in bytes."""
        if self.nbytes is not None:
            return self.nbytes
        assert self.percent is not None
        return int(eager_peak_bytes * self.percent / 100)


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes on the device outside of the activation peak, by what they are."""

    parameters_bytes: int
    trained_bytes: int  # of the parameters that require a gradient
    buffers_bytes: int
    inputs_bytes: int


@dataclass(frozen=True, slots=True)
class Breakdown:
    """What a device's memory goes to; `activations_bytes` is left for the step."""

    device_bytes: int
    parts: tuple[tuple[str, int], ...]

    @property
    def activations_bytes(self) -> int:
        """Return what is left."""
        return self.device_bytes - sum(nbytes for _, nbytes in self.parts)

    def __str__(self) -> str:
        parts = "".join(f" - {size(nbytes)} {name}" for name, nbytes in self.parts if nbytes)
        return f"{size(self.device_bytes)} device{parts} = {size(self.activations_bytes)}"


def parse_budget(text: str) -> Budget:
    """Read `6GB`, `1.5GiB`, `512MB`, `4096` (bytes) or `70%` (of the eager activation peak).

    Raises:
        UsageError: it is none of these, nothing, or more than everything.
    """
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match[2] != "%":
        return Budget(text.strip(), nbytes=parse_size(text, "--budget", f"{EXAMPLES} or 70%"))
    percent = Fraction(match[1])
    if not 0 < percent <= 200:  # small models need a bit more than eager at the least
        raise UsageError(f"--budget {text}: a share is above 0% and at most 200%, as in 70%")
    return Budget(text.strip(), percent=percent)


def parse_size(text: str, option: str, examples: str = EXAMPLES) -> int:
    """Read a number of bytes; GB is 10^9, GiB is 2^30.

    Raises:
        UsageError: it is no size, or less than one byte.
    """
    match = _NUMBER.fullmatch(text.strip())
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise UsageError(f"{option} {text!r}: not a size; write it as {examples}")
    nbytes = int(Fraction(match[1]) * unit)
    if nbytes < 1:
        raise UsageError(f"{option} {text}: must be at least one byte; write it as {examples}")
    return nbytes


def break_down(
    device_bytes: int, resident: Resident, optimizer: Optimizer, headroom_bytes: int
) -> Breakdown:
    """Subtract from a device's memory all that is no activation.

    Raises:
        UsageError: nothing is left.
    """
    parts = (
        ("parameters", resident.parameters_bytes),
        ("gradients", resident.trained_bytes),
        (f"{optimizer.value} state", optimizer.copies * resident.trained_bytes),
        ("buffers", resident.buffers_bytes),
        ("inputs", resident.inputs_bytes),
        ("headroom", headroom_bytes),
    )
    breakdown = Breakdown(device_bytes, parts)
    if breakdown.activations_bytes < 1:
        raise UsageError(
            f"--device-memory leaves nothing for activations: {breakdown}; a smaller --headroom "
            f"or a leaner --optimizer may help"
        )
    return breakdown
