"""Eager's activation peak, and where its number comes from: a percentage is of that."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PeakSource(StrEnum):
    """Where the number is from.

    `PREDICTED` is the replay with nothing run again, `CONFIRMED` the same where eager's step was
    measured and agrees with it; `FOLLOWED` is what eager's own step holds without values.
    """

    PREDICTED = "predicted"
    CONFIRMED = "measured as predicted"
    FOLLOWED = "predicted on tensors without values"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True)
class EagerPeak:
    """What eager's step needs for activations."""

    nbytes: int
    source: PeakSource

    def __str__(self) -> str:
        """Name it: "eager's measured peak"."""
        if self.source in (PeakSource.CONFIRMED, PeakSource.FOLLOWED):
            return f"eager's peak, {self.source}"
        return f"eager's {self.source} peak"

    @property
    def without(self) -> str:
        """Say which figures are without what a plan leaves out: a step that ran has it."""
        ran = self.source in (PeakSource.MEASURED, PeakSource.FOLLOWED)
        return "eager's time is without it, its peak with it" if ran else "eager's are without it"

    def share(self, nbytes: int) -> float:
        """Return bytes in percent of it."""
        return 100 * nbytes / max(self.nbytes, 1)
