"""How `verify` judges a prediction: by requested bytes, and a GPU's by allocated ones as well."""

from __future__ import annotations

import pytest

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
