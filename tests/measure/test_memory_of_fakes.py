"""Bytes of tensors without values are those of real ones, whoever holds them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from one_thread import one_thread as one_thread
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from remat_gen.capture.profile.memory_events import recorded_memory
from remat_gen.capture.profile.memory_of_fakes import FakeMemory

MANY = 4 * 1000  # bytes of a thousand numbers


def test_what_dies_is_gone_and_views_are_free() -> None:
    with FakeTensorMode():
        given = torch.empty(1000)
        with FakeMemory({}) as memory:
            twice = given * 2
            thrice = twice.view(10, 100)[1:] * 3
            assert memory.live_bytes == MANY + MANY * 9 // 10
            del twice, thrice
            given.add_(1)
    assert (memory.live_bytes, memory.peak_bytes) == (0, MANY + MANY * 9 // 10)


def test_autograd_holds_what_it_saves() -> None:
    with FakeTensorMode():
        given = torch.empty(1000, requires_grad=True)
        with FakeMemory({}) as memory:
            total = given.exp().sin().sum()
            assert memory.live_bytes == MANY + 4  # the result of exp, which both nodes save
            del total
    assert memory.live_bytes == 0


def added_in_place(given: Tensor) -> Tensor:
    twice = given * 2
    return (twice * 5).sum() + (twice * 3).sum()


def held_elsewhere(given: Tensor) -> Tensor:
    """What is added up first is another tensor's gradient, too."""
    one, other = given[:1].expand(1000), given[1:2].expand(1000)
    early = (one * 3).sum()
    return early + ((one + other) * 3).sum()


def own_formula(given: Tensor) -> Tensor:
    return functional.mish(given * 2).sum() + given.norm(dim=0)


def rows_selected(given: Tensor) -> Tensor:
    """Its gradient's zeros are filled, not copied."""
    return (given * 2).index_select(0, torch.arange(500)).mul(3).sum()


def views_summed(given: Tensor) -> Tensor:
    """A gradient that is a view has a base, so that no other is added into it."""
    weight, x = given.view(250, 4), torch.ones(2, 4)
    return (x @ weight.t()).sum() + (x @ weight.t()).mul(3).sum()


FORWARDS = added_in_place, held_elsewhere, own_formula, rows_selected, views_summed


@pytest.mark.parametrize("forward", FORWARDS)
def test_the_peak_of_backward_is_that_of_real_tensors(
    forward: Callable[[Tensor], Tensor], one_thread: None
) -> None:
    real = torch.ones(1000, requires_grad=True)
    real.grad = torch.zeros(1000)
    total = forward(real)
    with recorded_memory() as recording:
        total.backward()
    with FakeTensorMode():
        given = torch.empty(1000, requires_grad=True)
        given.grad = torch.empty(1000)
        total = forward(given)
        with FakeMemory({}) as memory:
            total.backward()
    highest = max(event.total_bytes for event in recording.events)
    assert abs(memory.peak_bytes - highest) < 100  # single numbers


def test_a_view_of_a_constant_takes_nothing() -> None:
    constant = torch.ones(2, 1000)
    with FakeTensorMode(allow_non_fake_inputs=True), FakeMemory({}) as memory:
        doubled = constant[0] * 2
        assert memory.live_bytes == MANY
        del doubled
    assert (memory.live_bytes, memory.peak_bytes) == (0, MANY)


def test_workspace_is_that_of_the_same_call() -> None:
    call = ("aten.mul.Tensor", (((1000,), "float32"), ((1000,), "float32")))
    with FakeTensorMode():
        given = torch.empty(1000)
        with FakeMemory({call: 512}) as memory:
            given * given
        assert memory.peak_bytes == MANY + 512
        with FakeMemory({call: 512}) as memory:
            given.double() * given
        assert memory.peak_bytes == 4 * MANY
        with FakeMemory({("aten.addcmul.default", call[1]): 512}) as memory:
            torch.addcmul(given, given, given)  # of one more than a trace has
        assert memory.peak_bytes == MANY + 512


def test_storages_are_rounded_up() -> None:
    with FakeTensorMode(), FakeMemory({}, alignment=512) as memory:
        torch.empty(1)
    assert memory.peak_bytes == 512


def test_what_depends_on_values_is_not_made_up() -> None:
    with FakeTensorMode(), FakeMemory({}), pytest.raises(RuntimeError):
        torch.empty(4).sum().item()
