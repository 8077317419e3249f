"""Several steps in flight: the budget holds while others wait for their backward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import planned_units
import pytest
import torch
from planned_units import Pair, same_bits

import remat_gen
from remat_gen.verification.peak import model_peak

CPU = torch.device("cpu")


def _peak(pair: Pair, steps: int) -> int:
    _, model = pair.models()
    return model_peak(model, *pair.example, CPU, in_flight=steps).peak_bytes


@pytest.mark.parametrize("whole", [False, True], ids=["units", "whole"])
@pytest.mark.parametrize("steps", [2, 4])
def test_the_budget_holds_while_others_wait(tmp_path: Path, steps: int, *, whole: bool) -> None:
    pair = planned_units.plan(tmp_path, "deep", "75%", whole=whole, in_flight=steps)
    made = pair.generated.plan
    assert made.asked.in_flight == steps and f"--in-flight {steps}" in made.asked.command
    assert made.predicted.reruns > 0
    assert _peak(pair, steps) == made.predicted.peak_bytes <= made.asked.budget_bytes
    assert _peak(pair, steps + 1) > made.asked.budget_bytes
    original, _ = pair.models()
    eager = model_peak(original, *pair.example, CPU, in_flight=steps).peak_bytes
    # a unit holds the gradient that comes in until it is done: one value of 3 KiB
    assert 0 <= made.predicted.eager_peak_bytes - eager <= (0 if whole else 4096)
    assert same_bits(pair)


def test_smaller_steps_in_flight_fit(tmp_path: Path) -> None:
    pair = planned_units.plan(tmp_path, "deep", "75%", in_flight=3)
    _, model = pair.models()
    for batch in (1, 2, 3):
        ids = pair.example[0][0][:batch]
        found = model_peak(model, (ids,), {}, CPU, in_flight=3).peak_bytes
        assert found <= pair.generated.plan.asked.budget_bytes


def test_in_flight_under_fsdp(tmp_path: Path) -> None:
    made = planned_units.plan(tmp_path, "deep", "75%", fsdp=2, in_flight=2).generated
    assert made.output is not None
    report = remat_gen.verify(made.output, time_steps=0)
    assert report.ok and report.planned_peak is not None
    assert report.planned_peak.peak_bytes <= made.plan.predicted.peak_bytes


def test_nothing_is_run_again_where_all_fit(tmp_path: Path) -> None:
    pair = planned_units.plan(tmp_path, "deep", "100%", whole=True, in_flight=3)
    assert pair.generated.plan.predicted.reruns == 0
    path = pair.generated.output
    assert path is not None and not remat_gen.check(path).stale
    report = remat_gen.verify(path, time_steps=0)
    assert report.ok and report.planned_peak is not None
    assert report.planned_peak.peak_bytes == pair.generated.plan.predicted.peak_bytes


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"in_flight": 0}, "--in-flight 0: give at least 1"),
        ({"in_flight": 2, "offload": True}, "--in-flight and --offload exclude each other"),
        ({"in_flight": 2, "strategy": "none"}, "keeps 2 steps in flight within"),
    ],
)
def test_refusals(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    source = planned_units.MODELS / "deep.py"
    with pytest.raises(remat_gen.RematError, match=words):
        remat_gen.generate(source, **{"budget": "80%", "output": tmp_path / "x.py"} | options)
