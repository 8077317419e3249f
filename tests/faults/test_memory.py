"""Out of memory while an operation is profiled: its cost is modelled, and the plan says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from remat_gen.capture.profile import profile as profiling
from remat_gen.cli.app import main
from remat_gen.ir.plan import read_plan

ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("passes", [0, 1])
def test_the_operations_cost_is_modelled_and_marked(
    passes: int, error: Exception, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`passes` 0: it fails at once; 1: when its memory is measured, after it was timed."""
    failing = _failing_after(passes, error)
    monkeypatch.setattr(profiling, "resolve", failing)
    assert main(["small.py", "--budget", "80%", "--quiet", "--reprofile"]) == 0
    costs = read_plan(folder / "small_remat.plan.json").costs
    modelled = {name for name, cost in costs.items() if cost.modelled}
    assert modelled and all("gelu" in name for name in modelled), modelled
    assert all(costs[name].time_us > 0 for name in modelled)
    assert main(["verify", "small_remat.py", "--quiet"]) == 0


def _failing_after(passes: int, error: Exception) -> Callable[[str], Any]:
    """Let `aten.gelu` fail after it has been asked for that often."""
    real, asked = profiling.resolve, [0]

    def resolve(target: str) -> Any:
        if not target.startswith("aten.gelu."):
            return real(target)
        asked[0] += 1

        def fail(*_: object, **__: object) -> None:
            raise error

        return fail if asked[0] > passes else real(target)

    return resolve
