"""The activation peak is exact to the byte."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from remat_gen.verification.peak import activation_peak, model_peak
from remat_gen.verification.step import training_step

CPU = torch.device("cpu")
KIB = 1024


def bytes_of(size: int) -> Tensor:
    return torch.empty(size, dtype=torch.uint8)


def test_outputs_count_until_the_step_ends() -> None:
    def step() -> object:
        temporary = bytes_of(300)
        kept = [bytes_of(100)]
        del temporary
        kept.append(bytes_of(250))
        return kept

    measured = activation_peak(step, CPU)
    assert (measured.peak_bytes, measured.before_bytes, measured.after_bytes) == (400, 0, 0)
    assert measured.allocated_peak_bytes is None


def test_what_stays_is_no_activation() -> None:
    kept: dict[str, Tensor] = {}

    def step() -> None:
        bytes_of(100)
        kept["state"] = bytes_of(1000)

    first = activation_peak(step, CPU, warmups=0)
    assert (first.peak_bytes, first.before_bytes, first.after_bytes) == (0, 0, 1000)
    kept.clear()
    second = activation_peak(step, CPU, warmups=1)
    assert (second.peak_bytes, second.before_bytes, second.after_bytes) == (1000, 1000, 1000)


def test_what_hangs_in_a_reference_cycle_counts() -> None:
    def step() -> None:
        cycle: list[object] = [bytes_of(500)]
        cycle.append(cycle)

    measured = activation_peak(step, CPU)
    assert (measured.peak_bytes, measured.after_bytes) == (500, 0)


def test_a_cycle_that_the_warm_up_left_is_gone_after_the_step() -> None:
    kept: list[object] = []

    def step() -> None:
        cycle: list[object] = [bytes_of(500)]
        cycle.append(cycle)
        kept[:] = [cycle]

    measured = activation_peak(step, CPU)
    assert (measured.peak_bytes, measured.before_bytes, measured.after_bytes) == (500, 500, 500)


def test_only_what_is_new_is_looked_through() -> None:
    """What a long process keeps would be searched three times for each measured step."""
    looked: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            looked.append(info["generation"])

    gc.callbacks.append(note)
    try:
        activation_peak(lambda: None, CPU)
    finally:
        gc.callbacks.remove(note)
    assert looked == [1, 0, 1]


def test_the_collector_rests_and_runs_again() -> None:
    seen: list[bool] = []
    activation_peak(lambda: seen.append(gc.isenabled()), CPU)
    assert seen == [False, False]
    assert gc.isenabled()


@settings(max_examples=5, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 50)), max_size=40))
def test_any_sequence_of_allocations(actions: list[tuple[bool, int]]) -> None:
    """Replay allocations and frees; the peak is that of a list of sizes."""

    def run(make: Callable[[int], object], note: Callable[[list[object]], None]) -> None:
        live: list[object] = []
        for allocate, size in actions:
            if allocate:
                live.append(make(size))
            elif live:
                live.pop(size % len(live))
            note(live)

    sums = [0]
    run(lambda size: size, lambda live: sums.append(sum(live)))  # type: ignore[arg-type]
    measured = activation_peak(lambda: run(bytes_of, lambda _: None), CPU)
    assert measured.peak_bytes == max(sums)


class Exp(nn.Module):
    """exp(w x), 64 KiB a value: three values at once in backward, counted by hand below."""

    def __init__(self, loss: bool) -> None:
        super().__init__()
        self.loss = loss
        self.weight = nn.Parameter(torch.zeros(16 * KIB))

    def forward(self, x: Tensor) -> Tensor:
        y = (self.weight * x).exp()
        return y.sum() if self.loss else y


VALUE = 64 * KIB
X = torch.ones(16 * KIB)


def test_a_model_with_a_loss_by_hand() -> None:
    """exp's backward: y and d_product; beside them the loss and its gradient, 4 bytes each."""
    assert model_peak(Exp(loss=True), (X,), {}, CPU).peak_bytes == 2 * VALUE + 8


def test_a_model_without_a_loss_by_hand() -> None:
    """The output y, the incoming gradient, d_product."""
    assert model_peak(Exp(loss=False), (X,), {}, CPU).peak_bytes == 3 * VALUE


def test_fresh_gradients_are_no_activation() -> None:
    """At exp's backward y and d_product, at the multiplication's the new gradient, which stays."""
    measured = model_peak(Exp(loss=True), (X,), {}, CPU, set_to_none=True)
    assert measured.before_bytes == measured.after_bytes == VALUE
    assert measured.peak_bytes == VALUE + 8


def test_checkpointing_lowers_the_peak_of_a_deep_model() -> None:
    class Deep(nn.Module):
        def __init__(self, checkpoint: bool) -> None:
            super().__init__()
            self.checkpoint = checkpoint
            self.layers = nn.ModuleList(
                nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(4)
            )

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                if self.checkpoint:
                    x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
                else:
                    x = layer(x)
            return x.sum()

    x = torch.randn(32, 64)
    eager = model_peak(Deep(False), (x,), {}, CPU).peak_bytes
    checkpointed = model_peak(Deep(True), (x,), {}, CPU).peak_bytes
    assert checkpointed < 0.6 * eager


def test_a_measurement_leaves_the_model_usable() -> None:
    model = Exp(loss=True)
    model_peak(model, (X,), {}, CPU)
    model.zero_grad()
    training_step(model, (X,), {})
    assert torch.equal(model.weight.grad, X)  # type: ignore[arg-type]


def test_cuda_counts_requested_bytes_and_shows_allocated_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The allocator's statistics, as a GPU would give them: 1000 bytes stay, 700 more at most."""

    def statistics(requested: int, highest: int) -> dict[str, int]:
        return {
            "requested_bytes.all.current": requested,
            "requested_bytes.all.peak": highest,
            "allocated_bytes.all.current": 2 * requested,
            "allocated_bytes.all.peak": 3 * highest,
            "reserved_bytes.all.current": 4 * requested,
            "reserved_bytes.all.peak": 4 * highest,
        }

    answers = iter([statistics(900, 900), statistics(1000, 1700), statistics(1000, 1700)])
    order: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: order.append("synchronise"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: order.append("reset"))
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda _: next(answers))

    measured = activation_peak(lambda: order.append("step"), torch.device("cuda"))

    assert order == ["step", "synchronise", "reset", "step", "synchronise"]
    assert (measured.peak_bytes, measured.before_bytes, measured.after_bytes) == (700, 900, 1000)
    assert measured.allocated_peak_bytes == 3 * 1700 - 2 * 1000
    assert measured.reserved_bytes == 4 * 1700
