"""Print figures of files, an object each; none can stop the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path


def print_each(
    name: str, files: Iterable[str], figures: Callable[[Path], dict[str, object]]
) -> int:
    """Print what is found of each file; returns 1 if one of them failed."""
    failed = False
    for path in map(Path, files):
        told: dict[str, object] = {name: path.stem}
        try:
            told |= figures(path)
        except Exception as error:  # the next file may go well
            told["error"] = f"{type(error).__name__}: {error}"[:500]
            failed = True
        print(json.dumps(told), flush=True)
    return int(failed)
