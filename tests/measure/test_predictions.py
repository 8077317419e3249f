"""How `verify` judges a prediction: by requested bytes, and a GPU's by allocated ones as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import remat_gen
from remat_gen.capture.profile import profile
from remat_gen.review.verifying import verify_file
from remat_gen.verification.peak import PeakMeasurement
from remat_gen.verification.report import Report

MIB = 1 << 20


def judged(predicted: int, requested: int, allocated: int | None) -> tuple[bool | None, str]:
    peak = PeakMeasurement(requested, 0, 0, allocated, None if allocated is None else 20 * MIB)
    report = Report(planned_peak=peak, predicted_peak_bytes=predicted)
    row = next(row for row in report.rows() if row.what == "predicted peak")
    return row.ok, row.detail.rpartition(" ")[2]


@pytest.mark.parametrize(
    ("predicted", "requested", "allocated", "ok", "off"),
    [
        (10 * MIB, 10 * MIB, None, True, "0"),
        (10 * MIB, 9 * MIB, None, False, "1,048,576"),
        (115_200, 28_584, 115_200, True, "0"),  # many small tensors, each in a block of 512 bytes
        (10 * MIB, 10 * MIB, 11 * MIB, True, "0"),  # a large block that was not split
        (12 * MIB, 10 * MIB, 11 * MIB, False, "1,048,576"),
        (9 * MIB, 10 * MIB, 11 * MIB, False, "1,048,576"),
    ],
)
def test_a_prediction_is_between_requested_and_allocated_bytes(
    predicted: int, requested: int, allocated: int | None, ok: bool, off: str
) -> None:
    assert judged(predicted, requested, allocated) == (ok, off)


MODEL = """
import torch
from torch import nn


def build_model():
    layers = [nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)]
    return nn.Sequential(*layers)


def example_inputs():
    return (torch.randn(4096, 64),)
"""


def with_more(inside: Callable[..., Any]) -> Callable[..., Any]:
    """Let each operation take a MiB more than it does."""
    return lambda *args: {name: found + MIB for name, found in inside(*args).items()}


def test_kernels_of_another_machine_are_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, inside = tmp_path / "net.py", profile.inside_bytes
    path.write_text(MODEL, encoding="utf-8")
    monkeypatch.setattr(profile, "inside_bytes", with_more(inside))
    remat_gen.generate(path, budget="100%", output=(output := tmp_path / "net_remat.py"))
    wrong = verify_file(output)  # so it would be here, too, but is not
    assert not wrong.ok and not wrong.as_predicted
    assert wrong.predicted_here_bytes == wrong.predicted_peak_bytes
    monkeypatch.setattr(profile, "inside_bytes", inside)
    there = verify_file(output)
    assert there.ok and there.predicted_peak_bytes == wrong.predicted_peak_bytes
    assert there.planned_peak and there.predicted_here_bytes == there.planned_peak.peak_bytes
    row = next(row for row in there.rows() if row.what == "predicted peak")
    assert (
        f"predicted {there.predicted_here_bytes:,} bytes for this machine's kernels" in row.detail
    )
