"""What counts as a GPU's noise, from steps that were made up: no GPU is needed."""

from __future__ import annotations

from itertools import count

import pytest
import torch
from torch import Tensor, nn

from remat_gen.verification.compare import Match, compare_steps
from remat_gen.verification.compare_models import verify_models
from remat_gen.verification.outcome import Outcome
from remat_gen.verification.repeated_steps import STEPS, Repeats, repeats_of, steps_of_runs, told
from remat_gen.verification.report import Report
from remat_gen.verification.smaller_batch import SmallerStep

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
EPS = torch.finfo(torch.float32).eps
LARGEST = 256 * EPS  # of which four times are allowed


def steps(**values: object) -> list[Outcome]:
    """Return what two steps leave behind: `w` and `v` are gradients, the rest are outputs."""
    kinds = {"w": "gradients", "v": "gradients", "state": "random state"}
    return [{(kinds.get(name, "outputs"), name): value for name, value in values.items()}] * STEPS


def repeated(name: str, *values: object, device: torch.device = CUDA) -> Repeats:
    return repeats_of(iter([steps(**{name: value}) for value in values]), device)


def noise(name: str, *values: object) -> float:
    (first, second) = repeated(name, *values).noise
    assert first == second
    return next(iter(first.values()), 0.0)


def test_at_least_three_repeats_of_both_steps() -> None:
    assert steps_of_runs(CUDA).count(STEPS) - 1 >= 3
    assert steps_of_runs(CPU).count(STEPS) - 1 >= 1


def test_the_largest_of_the_repeats_counts() -> None:
    x = torch.ones(3)
    runs = [x, x + 2 * EPS, x + 32 * EPS, x + 28 * EPS]
    assert noise("y", *runs) == 30 * EPS
    assert repeated("y", *runs).unlike is None
    assert noise("y", x, x, x, x) == 0.0


@pytest.mark.parametrize("off", [0.763, 1e30])
@pytest.mark.parametrize("name", ["y", "w"])
def test_noise_is_bounded(name: str, off: float) -> None:
    x = torch.tensor([1.0, 0.0])
    runs = [x, x, x, x + off]
    assert noise(name, *runs) == LARGEST
    found = repeated(name, *runs)
    assert found.unlike is not None and found.unlike.match is Match.DIFFERENT
    planned = steps(**{name: x + 0.763})
    (wrong, _) = compare_steps(steps(**{name: x}), planned, found.noise)
    assert wrong.match is Match.DIFFERENT


def test_gradients_are_bounded_by_the_largest_of_the_step() -> None:
    large, zero = torch.full((3,), 8.0), torch.zeros(3)
    runs = [steps(w=large, v=zero, y=zero), steps(w=large, v=zero + 1e-3, y=zero + 1e-3)]
    (one, _) = repeats_of(iter(runs), CUDA).noise
    assert one[("gradients", "v")] == 8 * LARGEST
    assert one[("outputs", "y")] == 0.0


def test_infinities_do_not_unbound_it() -> None:
    x = torch.tensor([1.0, torch.inf, torch.nan])
    moved = x + torch.tensor([1.0, 0.0, 0.0])
    assert noise("y", x, moved) == noise("w", x, moved) == LARGEST


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_16_bits_the_bound_is_lower(dtype: torch.dtype) -> None:
    x = torch.ones(3, dtype=dtype)
    assert noise("w", x, 3 * x) == 4 * torch.finfo(dtype).eps
    found = repeated("w", x, 3 * x).unlike
    assert found is not None and found.match is Match.DIFFERENT


def test_complex_numbers_have_noise() -> None:
    x = torch.ones(3, dtype=torch.complex64)
    assert 0 < noise("y", x, x + 8j * EPS) <= LARGEST
    assert noise("y", x, 9 * x) == LARGEST


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.tensor([1, 2]), torch.tensor([1, 3])),
        (torch.tensor([True]), torch.tensor([False])),
        (None, torch.zeros(2)),
        (torch.zeros(2), None),
        (0.5, 0.5000001),
        (torch.zeros(2), torch.zeros(3)),
        (torch.zeros(2), torch.full((2,), torch.nan)),
    ],
)
def test_other_things_have_none(one: object, other: object) -> None:
    for device in (CPU, CUDA):
        found = repeated("y", one, other, device=device)
        assert not any(value for step in found.noise for value in step.values())
        assert found.unlike is not None and not found.may_be_order


def test_random_states_have_none() -> None:
    state = torch.zeros(16, dtype=torch.uint8)
    assert noise("state", state, state + 1) == 0.0
    assert repeated("state", state, state + 1).unlike is not None


def test_on_the_cpu_every_bit_counts() -> None:
    x = torch.ones(3)
    assert repeated("y", x, x, x, device=CPU).unlike is None
    assert repeated("y", x, x, x + EPS, device=CPU).may_be_order
    assert repeated("y", 0 * x, -0.0 * x, device=CPU).may_be_order
    assert repeated("y", x, x + EPS, x + 1, device=CPU).may_be_order is False


class Net(nn.Module):
    """Is off by something else in each call."""

    def __init__(self, off: float, wrong: float = 0.0) -> None:
        super().__init__()
        self.up, self.off, self.wrong, self.calls = nn.Linear(8, 8), off, wrong, count()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.up(x)
        return y + (self.off * (next(self.calls) * 7 % 5) + self.wrong) * self.of(y)

    def of(self, y: Tensor) -> Tensor:
        return y


class OutputsOnly(Net):
    def of(self, y: Tensor) -> Tensor:
        return y.detach()


def verify(
    monkeypatch: pytest.MonkeyPatch, original: nn.Module, planned: nn.Module, *smaller: SmallerStep
) -> Report:
    """Verify as if on a GPU; nothing that needs one is run."""
    monkeypatch.setattr("remat_gen.verification.compare_models.model_peak", lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    limits = {"predicted_peak_bytes": None, "budget_bytes": None}
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    return verify_models(original, planned, (x,), {}, device=CUDA, smaller=smaller, **limits)


def test_verification_allows_the_noise_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Net, OutputsOnly):
        report = verify(monkeypatch, kind(off=4e-6), kind(off=4e-6))
        assert report.ok and not report.bitwise and not report.deterministic
        (told,) = (row for row in report.rows() if row.what == "original model")
        assert told.result == "not bitwise itself" and told.ok is None
        assert f"{report.moving} of its results differ" in told.detail and report.moving
    wrong = verify(monkeypatch, Net(off=4e-6), Net(off=4e-6, wrong=1e-3))
    assert {row.what for row in wrong.rows() if row.ok is False} == {"outputs", "gradients"}
    stray = verify(monkeypatch, Net(off=0.1), Net(off=0.1))
    assert [row.result for row in stray.rows()] == ["not repeatable"]
    assert "torch.use_deterministic_algorithms(True)" in stray.rows()[0].detail


class InAnyOrder(Net):
    """Adds in any order at a batch of 5, by so much that no tolerance has it."""

    def of(self, y: Tensor) -> Tensor:
        in_order = len(y) != 5 or torch.get_deterministic_debug_mode() > 0
        return y * 0.0 if in_order else y


class WrongAtFive(InAnyOrder):
    """Is wrong at a batch of 5, and adds in any order there."""

    def of(self, y: Tensor) -> Tensor:
        return super().of(y) + y * 0.1 * (len(y) == 5)


class AtFirst(Net):
    """Is off in the first calls with a batch of 5 only."""

    def of(self, y: Tensor) -> Tensor:
        if len(y) == 5:
            self.up.seen = getattr(self.up, "seen", 0) + 1
        return y * (len(y) == 5 and self.up.seen < 4)


FIVE = SmallerStep(
    "batch of 5", (torch.randn(5, 8, generator=torch.Generator().manual_seed(1)),), {}
)


def test_a_smaller_batch_that_moves_by_more_is_compared_in_one_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = verify(monkeypatch, InAnyOrder(off=0.1), InAnyOrder(off=0.1), FIVE)
    assert report.ok and report.bitwise and not report.deterministic
    (told,) = (row for row in report.rows() if row.what == "batch of 5")
    assert told.result == "bitwise" and told.detail.endswith("by torch's deterministic algorithms")
    wrong = verify(monkeypatch, InAnyOrder(off=0.1), WrongAtFive(off=0.1), FIVE)
    (told,) = (row for row in wrong.rows() if row.ok is False)
    assert told.what == "batch of 5" and told.result == "different"
    assert not torch.are_deterministic_algorithms_enabled()


def test_an_original_that_moves_by_more_is_compared_in_one_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Moves(Net):
        def forward(self, x: Tensor) -> Tensor:
            self.off = 0.0 if torch.get_deterministic_debug_mode() else 0.1
            return super().forward(x)

    report = verify(monkeypatch, Moves(off=0.1), Moves(off=0.1))
    assert report.ok and report.bitwise and report.deterministic
    wrong = verify(monkeypatch, Moves(off=0.1), Moves(off=0.1, wrong=1e-3))
    told = {row.what for row in wrong.rows() if row.ok is False}
    assert told == {"outputs", "gradients", "evaluation"}


class OffInGradients(Net):
    """Moves in its gradients alone, unless asked not to."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.up(x)
        one_order = torch.get_deterministic_debug_mode() > 0
        off = 0.0 if one_order else self.off * (next(self.calls) * 7 % 5)
        return y * 1.0 + (y - y.detach()) * (off + self.wrong)


def test_gradients_that_moved_less_in_the_repeats_are_compared_in_one_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = verify(monkeypatch, OffInGradients(off=1e-6), OffInGradients(off=1e-4))
    assert report.ok and report.bitwise and report.deterministic
    wrong = verify(monkeypatch, OffInGradients(off=1e-6), OffInGradients(off=1e-4, wrong=1e-3))
    assert {row.what for row in wrong.rows() if row.ok is False} == {"gradients"}


def test_state_of_the_first_steps_is_not_taken_for_order(monkeypatch: pytest.MonkeyPatch) -> None:
    report = verify(monkeypatch, AtFirst(off=0.1), Net(off=0.0), FIVE)
    (told,) = (row for row in report.rows() if row.what == "batch of 5")
    assert told.ok is False and told.result == "not repeatable"


def test_only_a_gpu_is_asked_for_deterministic_kernels() -> None:
    unlike = repeated("y", torch.zeros(2), torch.ones(2)).unlike
    assert unlike is not None
    assert "deterministic" not in told(unlike, CPU) and "off by 1 " in told(unlike, CPU)
