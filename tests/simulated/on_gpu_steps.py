"""A planned model beside its original on a GPU: what steps allocate, and what they wait for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simulated_gpu.events import Event, logged
from simulated_gpu.peaks import peak_in_blocks

import remat_gen
from remat_gen.capture.load.load import Loaded, load
from remat_gen.review.generated_module import verify_file
from remat_gen.verification.step import training_step

OGC: dict[str, Any] = {"strategy": "ogc"}


def step(loaded: Loaded) -> object:
    return training_step(loaded.model, loaded.args, loaded.kwargs)


def waited_for(loaded: Loaded) -> list[Event]:
    """Return what the host waits for in a step: results, synchronisations, copies to the device."""
    step(loaded)
    with logged() as events:
        step(loaded)
    return [event for event in events if event.kind in ("read", "sync", "upload")]


def holds_on_gpu(path: Path, budget: str, **options: object) -> int:
    """Plan, run and compare: bitwise, within the budget, no wait that eager has not.

    By OGC's schedule: found at once, and with more re-runs than the best.

    Returns:
        The bytes by which the peak was mispredicted.
    """
    made = remat_gen.generate(path, device="cuda", budget=budget, **(OGC | options))
    assert made.output is not None
    report = verify_file(made.output)
    assert report.ok and report.bitwise, report.rows()
    eager, planned = load(path, device="cuda"), load(made.output, device="cuda")
    predicted = made.plan.predicted.peak_bytes
    measured = peak_in_blocks(lambda: step(planned))
    assert measured <= made.plan.asked.budget_bytes
    assert len(waited_for(planned)) <= len(waited_for(eager))
    return predicted - measured
