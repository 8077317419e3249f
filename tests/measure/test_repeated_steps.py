"""An original that does not repeat itself is told, whatever the planned model does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from remat_gen.show.summary import report_json
from remat_gen.verification.compare_models import verify_models
from remat_gen.verification.report import Report
from remat_gen.verification.smaller_batch import SmallerStep

WIDTH = 8
SMALLER = (SmallerStep("batch of 3", (torch.randn(3, WIDTH),), {}),)
Forward = Callable[[int, Tensor], object]


class Net(nn.Module):
    """Hands what `shown` makes of the number of the call and its own output on."""

    def __init__(self, shown: Forward, calls: Iterator[int] | None = None) -> None:
        super().__init__()
        self.up, self.shown, self.state = nn.Linear(WIDTH, WIDTH), shown, SimpleNamespace()
        self.state.calls = calls or count()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> object:
        return self.shown(next(self.state.calls), self.up(x))


def verify(
    original: nn.Module, planned: nn.Module, smaller: tuple[SmallerStep, ...] = ()
) -> Report:
    x = torch.randn(16, WIDTH, generator=torch.Generator().manual_seed(0))
    limits = {"predicted_peak_bytes": None, "budget_bytes": None}
    device = torch.device("cpu")
    return verify_models(original, planned, (x,), {}, device=device, smaller=smaller, **limits)


def failing(report: Report) -> list[str]:
    return [row.what for row in report.rows() if row.ok is False]


def plain(_: int, y: Tensor) -> object:
    return y


def drawn_by_numpy() -> Forward:
    generator = np.random.default_rng(0)
    return lambda n, y: y * float(generator.random())


def every(period: int, at: int) -> Forward:
    return lambda n, y: y * 2 if n % period == at else y


STATES: dict[str, Callable[[], Forward]] = {
    "numpy's generator": drawn_by_numpy,
    "a counter": lambda: lambda n, y: y * n,
    "the first call": lambda: lambda n, y: y * (1 + (n == 0)),
    "a last bit": lambda: lambda n, y: y + n * 1e-7 * y.detach(),
    "a gradient": lambda: lambda n, y: y * (1 + n) - (y * n).detach(),
    "a number": lambda: lambda n, y: (y, n),
    "an integer": lambda: lambda n, y: (y, torch.tensor(n)),
    "none": lambda: lambda n, y: (y, y.sum() if n == 1 else None),
    "a structure": lambda: lambda n, y: (y, [y] * (n == 1)),
    "infinity": lambda: lambda n, y: (y, y.detach() / (n != 1)),
    "random numbers": lambda: lambda n, y: (y, torch.rand(n))[0],
}
PERIODS = [(period, at) for period in (2, 3, 4, 5) for at in range(period)]


@pytest.mark.parametrize("state", STATES)
def test_state_is_found_though_the_planned_model_has_it_too(state: str) -> None:
    report = verify(Net(STATES[state]()), Net(STATES[state]()))
    assert failing(report) == ["original model"] and not report.bitwise
    row = report.rows()[0]
    assert row.result == "not repeatable" and "two runs from the same state" in row.detail


@pytest.mark.parametrize(("period", "at"), PERIODS)
def test_state_that_comes_back_is_found(period: int, at: int) -> None:
    assert failing(verify(Net(every(period, at)), Net(plain))) == ["original model"]


@pytest.mark.parametrize("period", [2, 3, 4])
def test_state_that_both_models_share_is_found(period: int) -> None:
    """The planned model has moved it on, to where the original goes along with it."""
    calls = count()
    shown = every(period, 0)
    assert failing(verify(Net(shown, calls), Net(shown, calls))) == ["original model"]


def test_what_a_wrong_plan_is_off_by_is_no_noise() -> None:
    report = verify(Net(drawn_by_numpy()), Net(lambda n, y: y * 0.3))
    assert failing(report) == ["original model"] and not report.comparisons
    assert "outputs: output 0, step 1: off by " in report.rows()[0].detail
    assert "draw with torch" in report.rows()[0].detail
    assert report_json(report)["rows"][0]["result"] == "not repeatable"
    assert json.dumps(report_json(report)) and not report_json(report)["ok"]


def test_a_smaller_batch_has_to_repeat_itself_too() -> None:
    shown = drawn_by_numpy()
    original = Net(lambda n, y: shown(n, y) if len(y) < 16 else y)
    report = verify(original, Net(plain), SMALLER)
    assert failing(report) == ["batch of 3"]
    assert report.rows()[-1].result == "not repeatable"


def rounding(n: int, y: Tensor) -> Tensor:
    """Round otherwise from call to call, as atomic additions do, unless asked not to."""
    moved = not torch.get_deterministic_debug_mode() > 0
    return y * (1 + n % 7 * 1e-6 * moved)


def test_sums_in_any_order_are_compared_in_one_order() -> None:
    report = verify(Net(rounding), Net(rounding), SMALLER)
    assert report.ok and report.bitwise
    row = report.rows()[0]
    assert (row.what, row.ok, row.result) == ("original model", None, "deterministic")
    wrong = verify(Net(rounding), Net(lambda n, y: 1.001 * rounding(n, y)))
    assert set(failing(wrong)) == {"outputs", "gradients", "evaluation"}
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_gradient_of_rows_on_several_threads() -> None:
    """`index_put_` adds in any order on the CPU, too, from 32768 numbers on."""

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(169, 24))
            self.rows = torch.randint(169, (2401,))

        def forward(self, x: Tensor) -> Tensor:
            return (self.table[self.rows] * x[0, 0]).sin().sum()

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        original, planned = Rows(), Rows()
        planned.rows = original.rows
        report = verify(original, planned)
    finally:
        torch.set_num_threads(threads)
    assert report.ok and report.bitwise, report.rows()
