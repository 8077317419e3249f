"""A gradient that vanishes in exact arithmetic is rounding; a wrong one is still found."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from remat_gen.compare import Match, backward_noise
from remat_gen.outcome import State
from remat_gen.report import Report
from remat_gen.verification import verify_models

WIDTH = 32


class Net(nn.Module):
    """The bias of `up` has no effect: BatchNorm takes the mean away."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.sum(self.norm(self.up(x)).relu()).square().mean()

    def sum(self, h: Tensor) -> Tensor:
        return (h + self.left(h)) + self.right(h)


class OtherSum(Net):
    def sum(self, h: Tensor) -> Tensor:
        return h + (self.left(h) + self.right(h))


def verified(planned: type[Net]) -> Report:
    torch.manual_seed(0)
    original, x = Net(), torch.randn(64, WIDTH)
    return verify_models(
        original,
        planned(),
        (x,),
        {},
        device=torch.device("cpu"),
        predicted_peak_bytes=None,
        budget_bytes=None,
    )


def different(report: Report) -> set[str]:
    return {c.name for c in report.comparisons if c.match is Match.DIFFERENT}


def test_rounding_of_a_vanishing_gradient_is_no_difference() -> None:
    report = verified(OtherSum)
    assert report.ok and not report.bitwise


def test_without_the_backward_error_it_would_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(State, "nudged", lambda self, model: self)
    assert different(verified(OtherSum)) == {"up.bias, step 1", "up.bias, step 2"}


class Scaled(OtherSum):
    """The gradients of `left` are one in ten thousand too large."""

    def sum(self, h: Tensor) -> Tensor:
        left = self.left(h)
        return super().sum(h) + 1e-4 * (left - left.detach())


def test_a_gradient_that_is_a_little_wrong_is_found() -> None:
    assert {"left.weight, step 1", "left.bias, step 2"} <= different(verified(Scaled))


class Leaking(OtherSum):
    """Adds a thousandth of the largest gradient to the one that vanishes."""

    def forward(self, x: Tensor) -> Tensor:
        loss = super().forward(x)
        return loss + 1e-3 * (self.up.bias - self.up.bias.detach()).sum()


def test_an_error_in_a_vanishing_gradient_is_found() -> None:
    assert {"up.bias, step 1", "up.bias, step 2"} <= different(verified(Leaking))


def test_the_noise_is_bounded_by_the_largest_gradient() -> None:
    x, far = torch.zeros(3), torch.ones(3)
    most = 256 * torch.finfo(torch.float32).eps
    assert backward_noise(x, far, largest_of_all=1.0) == most
    assert backward_noise(x, x + most / 2, largest_of_all=1.0) == most / 2
    assert backward_noise(x, far, largest_of_all=0.0) == 0.0


def test_other_things_than_gradients_have_none() -> None:
    assert backward_noise(None, torch.ones(3), 1.0) == 0.0
    assert backward_noise(torch.zeros(3, dtype=torch.bfloat16), torch.ones(3), 1.0) == 0.0


def test_nudged_parameters_are_the_next_numbers() -> None:
    model = Net()
    before, after = State.of(model), State.of(model).nudged(model)
    weight, moved = (s.tensors["up.weight"] for s in (before, after))
    assert torch.equal(moved, torch.nextafter(weight, torch.tensor(torch.inf)))
    assert torch.equal(before.tensors["norm.running_var"], after.tensors["norm.running_var"])
