"""A share of eager's peak is of the measured one where its prediction is known to be off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from one_thread import one_thread as one_thread

import remat_gen
from remat_gen.capture.load.load import load
from remat_gen.ir.eager_peak import EagerPeak, PeakSource
from remat_gen.plan import original_step
from remat_gen.plan.original_step import Runs, judged, predicted_peak
from remat_gen.plan.pipeline import Generated
from remat_gen.show.summary import summary_json
from remat_gen.verification.peak import model_peak

# The formula of a product's gradient asks for zeros first: without values it is the longer one.
NET = """
import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(128, 128), nn.Linear(128, 128)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x)).{method}(-1).square().mean()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(128, 128),)
"""
BUDGET = "90%"


def net(folder: Path, method: str = "prod") -> Path:
    path = folder / "net.py"
    path.write_text(NET.format(method=method), encoding="utf-8")
    return path


def planned(path: Path, budget: str = BUDGET, **options: Any) -> Generated:
    asked: dict[str, Any] = {"device": "cpu"} | options
    return remat_gen.generate(path, budget=budget, static=True, effort="quick", **asked)


def measured_bytes(path: Path) -> int:
    eager = load(path, device="cpu")
    return model_peak(eager.model, eager.args, eager.kwargs, torch.device("cpu")).peak_bytes


def test_a_wrong_prediction_is_none_to_take_a_share_of(tmp_path: Path) -> None:
    path = net(tmp_path)
    made, measured = planned(path), measured_bytes(path)
    predicted = made.plan.predicted
    assert predicted.eager_peak_bytes > 1.5 * measured  # else this model is none for this test
    assert made.eager == predicted.eager
    assert made.eager.source is PeakSource.MEASURED
    assert measured <= made.eager.nbytes <= 1.001 * measured
    assert made.plan.asked.budget_bytes == made.eager.nbytes * 9 // 10
    assert "90.0% of eager's measured peak (90%)" in repr(made)
    assert "; eager's was measured" in made.text
    assert "(measured)" in made._repr_html_()
    assert summary_json(made)["eager"] == {"nbytes": made.eager.nbytes, "source": "measured"}


def test_planned_again_it_is_the_plan_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, output = net(tmp_path), tmp_path / "net_remat.py"
    first = planned(path, output=output)
    monkeypatch.setattr(original_step, "_available_bytes", lambda: 0)  # as on a smaller machine
    again = planned(path, output=output)
    assert (again.text, again.plan) == (first.text, first.plan)


def test_planned_again_with_other_threads_it_is_the_plan_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, output = net(tmp_path, "cumsum"), tmp_path / "net_remat.py"
    first = planned(path, output=output)
    monkeypatch.setattr(original_step, "run_twice", lambda *_: Runs(peak_bytes=1))  # not asked
    again = planned(path, output=output)
    assert (again.text, again.plan) == (first.text, first.plan)
    assert again.eager.source is PeakSource.PREDICTED


def test_a_right_prediction_stays(tmp_path: Path) -> None:
    made = planned(net(tmp_path, "cumsum"))
    predicted = made.plan.predicted
    assert made.eager == EagerPeak(predicted.eager_peak_bytes, PeakSource.CONFIRMED)
    assert predicted.eager_measured_bytes == 0
    assert "90.0% of eager's peak, measured as predicted (90%)" in repr(made)


def test_a_target_gets_the_prediction(tmp_path: Path) -> None:
    made = planned(net(tmp_path), target="h100", device="auto")
    assert made.eager.source is PeakSource.PREDICTED
    assert made.plan.asked.budget_bytes == made.plan.predicted.eager_peak_bytes * 9 // 10
    assert "90.0% of eager's predicted peak (90%)" in repr(made)


def test_a_step_that_does_not_fit_gets_the_prediction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(original_step, "_available_bytes", lambda: 0)
    assert planned(net(tmp_path)).eager.source is PeakSource.FOLLOWED


def test_bytes_need_no_measurement(tmp_path: Path) -> None:
    assert planned(net(tmp_path), "10MB").eager.source is PeakSource.FOLLOWED


def test_what_does_not_fit_is_told_in_shares_of_the_same(tmp_path: Path) -> None:
    with pytest.raises(remat_gen.RematError, match=r"\d+\.\d% of eager's measured peak\), set by"):
        planned(net(tmp_path), "5%")


@pytest.mark.parametrize(
    ("replayed", "measured", "found"),
    [
        (10**9, 1_010_000_000, EagerPeak(10**9, PeakSource.CONFIRMED)),
        (10**9, 1_011_111_111, EagerPeak(1_012_000_000, PeakSource.MEASURED)),
        (1000, 5096, EagerPeak(1000, PeakSource.CONFIRMED)),
        (30_000, 39_000, EagerPeak(39_000, PeakSource.MEASURED)),
        (39_000, 30_000, EagerPeak(39_000, PeakSource.CONFIRMED)),
    ],
)
def test_which_counts(replayed: int, measured: int, found: EagerPeak) -> None:
    assert judged(replayed, measured) == found


@pytest.mark.parametrize(
    ("exact", "found"),
    [
        (None, EagerPeak(1000, PeakSource.PREDICTED)),
        (1010, EagerPeak(1000, PeakSource.PREDICTED)),  # examples keep their bytes
        (1011, EagerPeak(1011, PeakSource.FOLLOWED)),
        (900, EagerPeak(900, PeakSource.FOLLOWED)),
    ],
)
def test_which_prediction_counts(exact: int | None, found: EagerPeak) -> None:
    assert predicted_peak(1000, exact) == found
