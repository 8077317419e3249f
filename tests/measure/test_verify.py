"""A planned model that is wrong in any one way is found; one that is right passes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from remat_gen.review.verifying import _planned_lengths
from remat_gen.verification.compare_models import verify_models
from remat_gen.verification.report import Report
from remat_gen.verification.smaller_batch import SmallerStep, smaller_step

CPU = torch.device("cpu")
WIDTH = 32
ROWS = 16
LENGTHS = {"7 <= batch <= 8": range(7, 9), "mine": 3}
SMALLER = (SmallerStep("batch of 3", (torch.randn(3, WIDTH, requires_grad=True),), {}),)


class Net(nn.Module):
    """Dropout, BatchNorm, a tied and an unused parameter, a non-persistent buffer, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.norm = nn.BatchNorm1d(4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)
        self.tied = nn.Linear(WIDTH, WIDTH, bias=False)
        self.tied.weight = self.head.weight
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        self.calls += 1
        return {"y": self.body(x), "calls": self.calls.clone()}

    def body(self, x: Tensor) -> Tensor:
        return self.tail(self.norm(self.up(x)).relu())

    def tail(self, h: Tensor) -> Tensor:
        h = nn.functional.dropout(h, 0.3, training=self.training)
        return self.tied(self.head(self.down(h)).tanh())


class Checkpointed(Net):
    def tail(self, h: Tensor) -> Tensor:
        y: Tensor = checkpoint(super().tail, h, use_reentrant=False)
        return y


class WrongGradient(Net):
    class Off(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *d: Tensor) -> Tensor:
            return d[0] * 1.001

    def tail(self, h: Tensor) -> Tensor:
        y: Tensor = self.Off.apply(super().tail(h))  # type: ignore[no-untyped-call]
        return y


class BufferTwice(Net):
    def body(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.norm(self.up(x))
        return super().body(x)


class CounterTwice(Net):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        outputs = super().forward(x)
        self.calls += 1
        return outputs


class StreamMovedAfter(Net):
    def tail(self, h: Tensor) -> Tensor:
        y = super().tail(h)
        torch.rand(1)
        return y


class StreamMovedBefore(Net):
    def tail(self, h: Tensor) -> Tensor:
        torch.rand(1)
        return super().tail(h)


class ZerosForUnused(Net):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        outputs = super().forward(x)
        outputs["y"] = outputs["y"] + 0 * self.unused.sum()
        return outputs


class ForgetsGradients(Net):
    """Sets `.grad` instead of adding to it: only a second step shows that."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        self.down.weight.grad = None
        return super().forward(x)


class PinsAParameter(Net):
    """Goes by a parameter as it was in the first step: an optimizer shows that."""

    def tail(self, h: Tensor) -> Tensor:
        if not hasattr(self, "first"):
            self.first = self.down.weight.detach().clone()
        return super().tail(h) + (self.down.weight.detach() - self.first).sum()


class OtherInEvaluation(Net):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        found = super().forward(x)
        return found if self.training else {**found, "y": found["y"] + 1}


class RaisesInEvaluation(Net):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        if not self.training:
            raise TypeError("fetch() missing 2 arguments")
        return super().forward(x)


class OtherStructure(Net):
    def forward(self, x: Tensor) -> Any:
        return tuple(super().forward(x).values())


class WritesInput(Net):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        outputs = super().forward(x)
        x.data.mul_(1.5)
        return outputs


class NoInputGradient(Net):
    def body(self, x: Tensor) -> Tensor:
        return super().body(x.detach())


class Raises(Net):
    def tail(self, h: Tensor) -> Tensor:
        raise ValueError("no plan for this")


class OtherState(Net):
    def __init__(self) -> None:
        super().__init__()
        self.extra = nn.Parameter(torch.zeros(1))


def verify(
    planned: Callable[[], Net],
    original: Callable[[], Net] = Net,
    **options: Any,
) -> Report:
    torch.manual_seed(0)
    first = original()
    x = torch.randn(ROWS, WIDTH).requires_grad_()
    limits = {"predicted_peak_bytes": None, "budget_bytes": None} | options
    return verify_models(first, planned(), (x,), {}, device=CPU, **limits)


def failing(report: Report) -> list[str]:
    return [row.what for row in report.rows() if row.ok is False]


class WrongWhenSmall(Net):
    def tail(self, h: Tensor) -> Tensor:
        y = super().tail(h)
        return y * 1.001 if len(h) < ROWS else y


class ClippedWhenSmall(Net):
    def tail(self, h: Tensor) -> Tensor:
        if len(h) < ROWS:
            raise ValueError("planned for the example's batch")
        return super().tail(h)


def test_a_smaller_batch_is_compared_too() -> None:
    assert verify(Net, smaller=SMALLER).bitwise
    assert failing(verify(Net, smaller=SMALLER)) == []
    assert failing(verify(WrongWhenSmall)) == []
    wrong = verify(WrongWhenSmall, smaller=SMALLER)
    assert failing(wrong) == ["batch of 3"]
    assert not wrong.bitwise
    refused = verify(ClippedWhenSmall, smaller=SMALLER)
    assert failing(refused) == ["batch of 3"]
    assert "planned for the example's batch" in refused.rows()[-1].detail


def test_a_smaller_batch_is_held_against_the_budget() -> None:
    report = verify(Net, smaller=SMALLER, budget_bytes=1)
    assert failing(report) == ["budget", "batch of 3"]


def test_a_smaller_batch_is_held_against_what_was_predicted_for_it() -> None:
    promised = replace(SMALLER[0], name="rung batch <= 3", predicted_peak_bytes=1 << 20)
    report = verify(Net, smaller=(*SMALLER, promised))
    assert failing(report) == ["rung batch <= 3"]
    assert [row.ok for row in report.rows()][-2:] == [True, False]


def test_a_smaller_batch_that_the_original_refuses_is_not_judged() -> None:
    report = verify(Net, ClippedWhenSmall, smaller=SMALLER)
    assert failing(report) == []
    assert report.rows()[-1].result == "not compared"


def test_the_smaller_step_is_of_an_odd_number_of_rows() -> None:
    model, x = Net(), torch.randn(8, WIDTH, requires_grad=True)
    step = smaller_step(model, (x,), {}, ["x:0"])
    assert step.name == "batch of 5" and torch.equal(step.args[0], x[:5])
    assert step.args[0].requires_grad and step.args[0].is_leaf
    assert smaller_step(model, (x[:2],), {}, ["x:0"]).name == "batch of 1"
    assert smaller_step(model, (x,), {}, ["x:0"], [range(7, 9)]).name == "batch of 7"
    kinds = (type("Planned", (nn.Module,), {"__module__": name}) for name in (__name__, "is_gone"))
    assert [_planned_lengths(kind()) for kind in kinds] == [[range(7, 9)], []]
    across = smaller_step(nn.Identity(), (torch.ones(8, 3).t(),), {}, ["input:1"]).args[0]
    assert across.shape == (3, 5) and across.stride() == (1, 3)


@pytest.mark.parametrize("planned", [Net, Checkpointed])
def test_right_models_pass_to_the_bit(planned: type[Net]) -> None:
    report = verify(planned)
    assert report.ok and report.bitwise
    kinds = {c.kind for c in report.comparisons}
    assert kinds == {
        "outputs", "gradients", "input gradients", "buffers", "inputs", "random state"
    }  # fmt: skip
    names = {c.name for c in report.comparisons}
    assert {"unused, step 1", "tied.weight, step 2", "norm.running_var, step 2"} <= names
    assert {"calls, step 1", "cpu, step 2"} <= names


@pytest.mark.parametrize(
    ("planned", "found"),
    [
        (WrongGradient, ["gradients", "input gradients"]),
        (BufferTwice, ["buffers"]),
        (CounterTwice, ["buffers"]),
        (StreamMovedAfter, ["random state"]),
        (ZerosForUnused, ["gradients"]),
        (ForgetsGradients, ["gradients"]),
        (PinsAParameter, ["outputs"]),
        (OtherStructure, ["outputs"]),
        (WritesInput, ["inputs"]),
        (NoInputGradient, ["input gradients"]),
        (Raises, ["planned model"]),
        (OtherState, ["planned model"]),
        (OtherInEvaluation, ["evaluation"]),
        (RaisesInEvaluation, ["evaluation"]),
    ],
)
def test_each_mistake_is_found_where_it_is(planned: type[Net], found: list[str]) -> None:
    report = verify(planned)
    assert not report.ok
    assert set(found) <= set(failing(report))
    if planned in (WrongGradient, BufferTwice, StreamMovedAfter, ZerosForUnused, NoInputGradient):
        assert "outputs" not in failing(report)


def test_a_different_mask_is_found() -> None:
    assert {"outputs", "gradients", "random state"} <= set(failing(verify(StreamMovedBefore)))


def test_a_forgotten_gradient_is_found_in_the_second_step() -> None:
    wrong = [c.name for c in verify(ForgetsGradients).comparisons if c.match.value == "different"]
    assert wrong == ["down.weight, step 2"]


def test_the_budget_is_exact() -> None:
    peak = verify(Checkpointed).planned_peak
    assert peak is not None
    assert verify(Checkpointed, budget_bytes=peak.peak_bytes).ok
    exceeded = verify(Checkpointed, budget_bytes=peak.peak_bytes - 1)
    assert failing(exceeded) == ["budget"]


def test_the_prediction_may_be_off_by_64_kib() -> None:
    peak = verify(Net).planned_peak
    assert peak is not None and peak.peak_bytes < 6_553_600  # where 1 % is less than 64 KiB
    assert verify(Net, predicted_peak_bytes=peak.peak_bytes + 65536).ok
    for wrong in (peak.peak_bytes + 65537, peak.peak_bytes - 65537):
        assert failing(verify(Net, predicted_peak_bytes=wrong)) == ["predicted peak"]


def test_each_model_has_its_own_peak() -> None:
    class Hungry(Net):
        def body(self, x: Tensor) -> Tensor:
            torch.empty(1 << 20)
            return super().body(x)

    report = verify(Net, original=Hungry)
    assert report.ok and report.original_peak and report.planned_peak
    assert report.original_peak.peak_bytes >= 4 << 20 > report.planned_peak.peak_bytes


def test_the_order_of_a_sum_is_within_tolerance() -> None:
    class Sum(Net):
        def body(self, x: Tensor) -> Tensor:
            return (x + self.head(x)) + self.tied(2 * x)

    class OtherSum(Net):
        def body(self, x: Tensor) -> Tensor:
            return x + (self.head(x) + self.tied(2 * x))

    report = verify(OtherSum, original=Sum)
    assert report.ok and not report.bitwise
    row = next(row for row in report.rows() if row.what == "outputs")
    assert row.result == "within tolerance" and "tolerance" in row.detail


def test_an_original_that_does_not_fit_is_reported_and_no_error() -> None:
    class TooLarge(Net):
        def body(self, x: Tensor) -> Tensor:
            raise torch.OutOfMemoryError("CUDA out of memory")

    class Broken(Net):
        def body(self, x: Tensor) -> Tensor:
            raise RuntimeError("broken")

    report = verify(Net, original=TooLarge, budget_bytes=10**9)
    assert report.ok and not report.bitwise and report.planned_peak
    assert any(row.what == "original model" and row.ok is None for row in report.rows())
    assert failing(verify(Net, original=Broken)) == ["original model"]


def test_times_are_compared_if_asked() -> None:
    assert verify(Net).time is None
    timed = verify(Checkpointed, time_steps=3)
    assert timed.time and timed.time.pairs == 3 and timed.time.median > 0
    assert any(row.what == "step time" for row in timed.rows())


def test_the_global_stream_and_the_inputs_are_left_alone() -> None:
    x = torch.randn(ROWS, WIDTH).requires_grad_()
    copied = copy.deepcopy(x)
    model, planned = Net(), WritesInput()
    before = torch.get_rng_state()
    report = verify_models(
        model, planned, (), {"x": x}, device=CPU, predicted_peak_bytes=None, budget_bytes=None
    )
    assert "inputs" in failing(report)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(x, copied) and x.grad is None


class PicksRows(Net):
    """Reads rows by number, as mixup does: the first of them may number rows that are not there."""

    def forward(self, x: Tensor, rows: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        return super().forward(x + x[rows])


def test_a_smaller_permutation_is_one() -> None:
    x, rows = torch.randn(8, WIDTH), torch.tensor([7, 2, 5, 0, 1, 3, 6, 4])
    step = smaller_step(PicksRows(), (x, rows), {}, ["x:0", "rows:0"])
    assert step.args[1].tolist() == [4, 2, 3, 0, 1]
    step = smaller_step(PicksRows(), (x, rows.int()), {}, ["x:0", "rows:0"])
    assert step.args[1].dtype is torch.int32 and step.args[1].tolist() == [4, 2, 3, 0, 1]
    labels = torch.tensor([7, 2, 5, 0, 1, 3, 3, 4])
    assert smaller_step(PicksRows(), (x, labels), {}, ["rows:0"]).args[1].tolist() == [
        7,
        2,
        5,
        0,
        1,
    ]
    other = smaller_step(PicksRows(), (x, rows.float()), {}, ["rows:0"])
    assert other.args[1].tolist() == [7, 2, 5, 0, 1]


def test_a_smaller_batch_that_neither_can_take_is_not_judged() -> None:
    smaller = SmallerStep("batch of 3", (torch.randn(3, WIDTH), torch.tensor([7, 2, 5])), {})
    args = (torch.randn(ROWS, WIDTH), torch.randperm(ROWS))
    planned, original = PicksRows(), PicksRows()
    planned.load_state_dict(original.state_dict())
    report = verify_models(
        original,
        planned,
        args,
        {},
        device=CPU,
        predicted_peak_bytes=None,
        budget_bytes=None,
        smaller=(smaller,),
    )
    assert failing(report) == []
    assert report.rows()[-1].result == "not compared"
    assert "IndexError" in report.rows()[-1].detail


def test_a_model_for_training_alone_is_not_judged_in_evaluation() -> None:
    report = verify(OtherInEvaluation, RaisesInEvaluation)
    assert report.ok and report.bitwise
