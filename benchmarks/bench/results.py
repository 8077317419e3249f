"""What was measured, as data: one row per contestant, one result per model, one file for all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_PINS = {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"}  # nox -s bench sets them high


@dataclass(frozen=True, slots=True)
class Row:
    """A contestant with a model. Peaks are activation peaks; ratios are step times over eager's.

    `equal` is "bitwise", "rounding", or what differs from eager ("buffers, …"). With `why_not` it
    did not take part, and there are no figures.
    """

    name: str
    kind: str
    setting: str
    why_not: str = ""
    planned_bytes: int | None = None
    planned_ratio: float | None = None
    peak_bytes: int = 0
    ratio: float = 0.0
    low: float = 0.0
    high: float = 0.0
    step_us: float = 0.0
    equal: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """All contestants with one model; the first row is eager's.

    `pages_kept` tells whether the C library was told to keep freed pages (see `keeps_pages`).
    """

    model: str
    rounds: int
    torch: str
    threads: int
    rows: tuple[Row, ...]
    pages_kept: bool = False

    @property
    def eager(self) -> Row:
        """Return eager's row."""
        return self.rows[0]

    def share(self, nbytes: int) -> float:
        """Return bytes as a share of eager's measured peak."""
        return nbytes / self.eager.peak_bytes if self.eager.peak_bytes else 0.0


def keeps_pages() -> bool:
    """Tell whether glibc was told to give no freed pages back to the system.

    It otherwise does so between steps, and a step that follows a smaller one pays for them again:
    13,000 page faults in a step of gpt.py after one of half its memory, none after itself.
    """
    return os.environ.keys() >= _PINS


def read_results(path: Path) -> dict[str, Result]:
    """Read the results of a file by model; a file that is not there has none."""
    if not path.is_file():
        return {}
    content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {name: _result(entry) for name, entry in content.items()}


def write_results(path: Path, results: Mapping[str, Result]) -> None:
    """Write results; what an earlier run found about other models is among them."""
    content = {name: asdict(result) for name, result in results.items()}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _result(entry: Mapping[str, Any]) -> Result:
    rows = tuple(Row(**row) for row in entry["rows"])
    return Result(**{**entry, "rows": rows})
