"""A gradient that vanishes in exact arithmetic is rounding; a wrong one is still found."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from remat_gen.verification.compare import Match
from remat_gen.verification.compare_models import verify_models
from remat_gen.verification.noise import backward_error, rounding_error
from remat_gen.verification.outcome import State
from remat_gen.verification.report import Report
from remat_gen.verification.tensor_difference import difference

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
    return compared(Net(), planned(), torch.randn(64, WIDTH))


def compared(original: nn.Module, planned: nn.Module, x: Tensor) -> Report:
    return verify_models(
        original,
        planned,
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


class Rows(nn.Module):
    """Gradients are sums over rows that cancel; `wrong` is added to the kernel's."""

    def __init__(self, wrong: float = 0.0) -> None:
        super().__init__()
        self.norm, self.wrong = nn.LayerNorm(8), wrong

    def forward(self, x: Tensor) -> Tensor:
        wanted, x = x.unbind()
        weight = self.norm.weight
        loss = (self.normed(x) * wanted).sum()
        return loss + self.wrong * (weight - weight.detach()).sum()

    def normed(self, x: Tensor) -> Tensor:
        return self.norm(x)


class OtherOrder(Rows):
    def normed(self, x: Tensor) -> Tensor:
        return self.norm(x.flip(0)).flip(0)


def rows() -> Tensor:
    return torch.randn(2, 1 << 17, 8, generator=torch.Generator().manual_seed(1))


def test_a_long_sum_in_another_order_is_no_difference() -> None:
    report = compared(Rows(), OtherOrder(), rows())
    assert report.ok and not report.bitwise


def test_without_the_rounding_error_it_would_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "remat_gen.verification.compare_models._Subject.double_outcomes", lambda self, model: []
    )
    assert "norm.weight, step 1" in different(compared(Rows(), OtherOrder(), rows()))


class Single(Rows):
    """Runs in single precision only."""

    def normed(self, x: Tensor) -> Tensor:
        assert x.dtype is torch.float32
        return super().normed(x)


def test_a_model_that_does_not_run_in_double_precision_has_no_rounding_error() -> None:
    assert "norm.weight, step 1" in different(compared(Single(), OtherOrder(), rows()))


class OwnError(Exception):
    """An exception that nobody else knows."""


class Picky(Single):
    def normed(self, x: Tensor) -> Tensor:
        if x.dtype is not torch.float32:
            raise OwnError
        return super().normed(x)


def test_what_a_model_raises_in_double_precision_is_no_verdict() -> None:
    assert "norm.weight, step 1" in different(compared(Picky(), OtherOrder(), rows()))


class Noisy(nn.Module):
    """Noise of a size that rounding never has; the planned backward has drawn it anew."""

    def __init__(self, *, anew: bool = False) -> None:
        super().__init__()
        self.up, self.anew = nn.Linear(WIDTH, WIDTH), anew

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.randn_like(x)
        shown = x * (1 + 1e-5 * noise)
        if self.anew:
            other = torch.randn(x.shape, generator=torch.Generator().manual_seed(9))
            wrong = self.up(x * (1 + 1e-5 * other))
            right = self.up(shown)
            return (wrong + (right - wrong).detach()).square().mean()
        return self.up(shown).square().mean()


def test_noise_drawn_anew_is_found() -> None:
    x = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(2))
    assert "up.weight, step 1" in different(compared(Noisy(), Noisy(anew=True), x))


def test_an_error_in_a_long_sum_is_found() -> None:
    """The sums are of a size of 360, and off by a thousandth."""
    assert "norm.weight, step 1" in different(compared(Rows(), OtherOrder(wrong=0.05), rows()))


def test_other_numbers_in_double_precision_are_no_error() -> None:
    x = torch.randn(100)
    double = x.double() * (1 + 1e-6)
    assert 0 < rounding_error(x, double, 1.0) < 1e-5
    assert rounding_error(x, torch.randn(100).double(), 1.0) == 0.0
    assert rounding_error(x, torch.full((100,), torch.nan).double(), 1.0) == 0.0
    assert rounding_error(x, None, 1.0) == 0.0
    assert rounding_error(torch.zeros(3), torch.zeros(3).double(), 1.0) == 0.0


def test_a_number_that_flips_in_double_precision_is_no_error() -> None:
    """It is small beside the norm of so many, and not beside the largest."""
    x = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    flipped = x.double()
    flipped[3] += 1e-2 * x.abs().max()
    assert difference(x, flipped).relative < 1e-3
    assert rounding_error(x, flipped, 1.0) == 0.0


def test_the_noise_is_bounded_by_the_largest_gradient() -> None:
    x, far = torch.zeros(3), torch.ones(3)
    most = 256 * torch.finfo(torch.float32).eps
    assert backward_error(x, far, largest_of_all=1.0) == most
    assert backward_error(x, x + most / 2, largest_of_all=1.0) == most / 2
    assert backward_error(x, far, largest_of_all=0.0) == 0.0


def test_other_things_than_gradients_have_none() -> None:
    assert backward_error(None, torch.ones(3), 1.0) == 0.0
    assert backward_error(torch.zeros(3, dtype=torch.bfloat16), torch.ones(3), 1.0) == 0.0


def test_nudged_parameters_are_the_next_numbers() -> None:
    model = Net()
    before, after = State.of(model), State.of(model).nudged(model)
    weight, moved = (s.tensors["up.weight"] for s in (before, after))
    assert torch.equal(moved, torch.nextafter(weight, torch.tensor(torch.inf)))
    assert torch.equal(before.tensors["norm.running_var"], after.tensors["norm.running_var"])


class Zeros(nn.Module):
    """Ends in a layer that begins as zeros: no gradient comes to `up` in the first step."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        nn.init.zeros_(self.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.scaled(self.up(x).relu())).square().mean()

    def scaled(self, h: Tensor) -> Tensor:
        return h


class ScaledBehindZeros(Zeros):
    """The gradients of `up` are one in a thousand too large."""

    def scaled(self, h: Tensor) -> Tensor:
        return h + 1e-3 * (h - h.detach())


def test_a_gradient_behind_zeros_is_found() -> None:
    """Between the steps zeros are changed, too: else both steps would be the same to the bit."""
    torch.manual_seed(0)
    found = different(compared(Zeros(), ScaledBehindZeros(), torch.randn(64, WIDTH)))
    assert "up.weight, step 2" in found
    assert "up.weight, step 1" not in found
