"""Other people's figures for models that can be measured here, from `published.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TABLE = Path(__file__).with_name("published.toml")


@dataclass(frozen=True, slots=True)
class Figure:
    """A peak as a share of their eager's, and a step time over their eager's where one is known.

    `how` is "measured" (their program, run on a CPU) or "published".
    """

    model: str
    name: str
    how: str
    share: float
    ratio: float | None


def published_for(model: str) -> tuple[Figure, ...]:
    """Return what others report of a model."""
    entries = tomllib.loads(_TABLE.read_text(encoding="utf-8"))["figure"]
    return tuple(figure_of(entry) for entry in entries if entry["model"] == model)


def figure_of(entry: Mapping[str, Any]) -> Figure:
    """Return an entry's figure; its share is given, or two peaks in megabytes are."""
    share = entry["share"] if "share" in entry else entry["peak_mb"] / entry["eager_mb"]
    return Figure(entry["model"], entry["name"], entry["how"], share, entry.get("ratio"))
