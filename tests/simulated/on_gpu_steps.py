"""A planned model beside its original on a GPU: what steps allocate, and what they wait for.

The simulated one knows more of a step than a real one tells, which is asked for what it has.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import remat_gen
from remat_gen.capture.load.load import Loaded, load
from remat_gen.plan.pipeline import Generated
from remat_gen.review.verifying import verify_file
from remat_gen.verification.step import training_step

try:
    from simulated_gpu.events import logged
    from simulated_gpu.peaks import peak_in_blocks

    SIMULATED = True
except ModuleNotFoundError:
    SIMULATED = False
simulated_only = pytest.mark.skipif(not SIMULATED, reason="asks what only a simulated GPU tells")
OGC: dict[str, Any] = {"strategy": "ogc"}


def step(loaded: Loaded) -> object:
    return training_step(loaded.model, loaded.args, loaded.kwargs)


def waited_for(loaded: Loaded) -> list[str]:
    """Return what the host waits for in a step: results, synchronisations, copies to the device."""
    step(loaded)
    if not SIMULATED:
        return _warned_of(loaded)
    with logged() as events:
        step(loaded)
    return [event.what for event in events if event.kind in ("read", "sync", "upload")]


def _warned_of(loaded: Loaded) -> list[str]:
    """Return what PyTorch warns of, which copies that nobody waits for are not among."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            step(loaded)
        finally:
            torch.cuda.set_sync_debug_mode(before)
    told = [str(warning.message) for warning in found]
    return [words for words in told if words.startswith("called a synchronizing")]


def mispredicted_bytes(generated: Generated) -> int:
    """Return predicted less measured peak; on a real GPU `verify` has judged it already."""
    if not SIMULATED:
        return 0
    assert generated.output is not None
    planned = load(generated.output, device="cuda")
    return generated.plan.predicted.peak_bytes - peak_in_blocks(lambda: step(planned))


def holds_on_gpu(path: Path, budget: str, **options: object) -> int:
    """Plan, run and compare: as `verify` judges, within the budget, no wait that eager has not.

    By OGC's schedule: found at once, and with more re-runs than the best.

    Returns:
        The bytes by which the peak was mispredicted.
    """
    made = remat_gen.generate(path, device="cuda", budget=budget, **(OGC | options))
    assert made.output is not None
    report = verify_file(made.output)
    if SIMULATED:
        assert report.ok and report.bitwise, report.rows()
    # a smaller batch of a deep network may amplify what cuDNN adds in any order
    assert not [r for r in report.rows() if r.ok is False and r.result != "not repeatable"]
    eager, planned = load(path, device="cuda"), load(made.output, device="cuda")
    assert made.plan.predicted.peak_bytes <= made.plan.asked.budget_bytes
    assert len(waited_for(planned)) <= len(waited_for(eager))
    return mispredicted_bytes(made)
