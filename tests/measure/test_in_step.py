"""Timing as in a step: which input is new, how many copies are needed, whose turn it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from measure_graphs import Builder

from remat_gen.capture.profile.in_step import (
    Place,
    Turns,
    copies_needed,
    copies_of,
    newest_inputs,
    time_again,
    time_warm,
    touch,
)
from remat_gen.capture.profile.timing import Effort
from remat_gen.ir.graph import Phase

CPU = torch.device("cpu")
MIB = 1 << 20


@pytest.fixture
def build() -> Builder:
    return Builder()


def test_the_newest_input_was_made_last(build: Builder) -> None:
    x, w = build.tensor("x", (4, 4)), build.tensor("w", (4, 4))
    h, y = build.tensor("h", (4, 4)), build.tensor("y", (4, 4))
    build.tensor("z", (4, 4))
    build.operation("aten.mm.default", [x, w], ["h"], name="first")
    build.operation("aten.relu.default", [h], ["y"], name="second")
    build.operation("aten.add.Tensor", [y, h], ["z"], name="third")
    assert newest_inputs(build.graph()) == {"second": "h", "third": "y"}


def test_what_is_written_over_is_new_again(build: Builder) -> None:
    h, y = build.tensor("h", (4,)), build.tensor("y", (4,))
    build.tensor("h_2", (4,), storage="h")
    build.tensor("z", (4,))
    build.operation("aten.ones.default", [(4,)], ["h"], name="ones")
    build.operation("aten.relu.default", [h], ["y"], name="relu")
    build.operation("aten.mul_.Tensor", [h, 2.0], ["h_2"], name="mul")
    build.operation("aten.add.Tensor", [y, h], ["z"], name="add")
    assert newest_inputs(build.graph())["add"] == "h"


def test_what_forward_made_is_old_in_backward(build: Builder) -> None:
    x, h, d = (build.tensor(name, (4,)) for name in "xhd")
    build.tensor("dx", (4,))
    build.operation("aten.relu.default", [x], ["h"], name="relu")
    build.operation("aten.neg.default", [h], ["d"], name="neg")
    build.operation("aten.mul.Tensor", [d, h], ["dx"], name="mul")
    graph = build.graph()
    forward, *backward = graph.operations
    backward = [replace(operation, phase=Phase.BACKWARD) for operation in backward]
    graph = replace(graph, operations=(forward, *backward))
    assert newest_inputs(graph) == {"mul": "d"}


def test_copies_are_more_than_caches_hold(build: Builder) -> None:
    x = build.tensor("x", (MIB,))
    build.tensor("y", (MIB,))
    add = build.operation("aten.add.Tensor", [x, x], ["y"])
    assert copies_needed(build.graph(), add, CPU) == 8  # of 4 MiB read and 4 MiB made


@pytest.mark.parametrize("nbytes, copies", [(0, 25), (16, 25), (5 * MIB, 13), (1 << 30, 1)])
def test_copies_are_between_one_and_the_most_repeats(nbytes: int, copies: int) -> None:
    assert copies_of(nbytes, CPU) == copies


def test_places_come_in_turn_and_keep_their_results() -> None:
    called: list[int] = []

    def place(number: int) -> Place:
        return Place(lambda: called.append(number) or torch.full((1,), number))

    turns = Turns([place(number) for number in range(3)], CPU)
    for _ in range(4):
        turns.prepare()
        turns()
    assert called == [0, 1, 2, 0]
    assert {at: int(result) for at, result in turns.results.items()} == {0: 0, 1: 1, 2: 2}


def test_each_place_has_memory_for_a_result_before_one_is_timed() -> None:
    called: list[int] = []

    def place(number: int) -> Place:
        return Place(lambda: called.append(number) or (torch.full((4,), number), None))

    places = [place(number) for number in range(4)]
    turns = Turns(places, CPU)
    warmed_us = turns.warm_up()
    assert called == [0] and sorted(turns.results) == [0, 1, 2, 3]
    made: list[Any] = [turns.results[at] for at in range(4)]
    assert len({tensor.data_ptr() for tensor, _ in made}) == 4
    assert [tensor.tolist() for tensor, _ in made] == [[0] * 4] * 4
    effort = Effort(fewest=3, most=3, enough_us=1e9)
    assert time_warm(turns, warmed_us, effort).device_us > 0
    assert called == [0, 1, 2, 3, 0]  # loads kernels, one to guess by, three that count


@pytest.mark.parametrize(
    "long_us, enough_us, calls", [(1.0, 1.0, (1, 1)), (1e9, 1.0, (4, 4)), (1e9, 1e9, (5, 4))]
)
def test_a_long_call_is_made_once_at_each_moment(
    long_us: float, enough_us: float, calls: tuple[int, int]
) -> None:
    """A warm-up tells how long others are, but where it may be mostly loading a kernel."""
    called: list[int] = []
    effort = Effort(fewest=3, most=3, long_us=long_us, enough_us=enough_us)

    def turns() -> Turns:
        return Turns([Place(lambda: called.append(0) or torch.ones(1 << 16))], CPU)

    first = time_warm(now := turns(), now.warm_up(), effort)
    assert len(called) == calls[0]
    assert time_again(turns(), first, effort).device_us > 0
    assert len(called) - calls[0] == calls[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64, torch.int64])
def test_touching_changes_nothing(dtype: torch.dtype) -> None:
    tensor = torch.randn(7, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    view = tensor.t()[2:]
    before = tensor.clone()
    touch(view)
    touch(None)
    assert torch.equal(tensor, before)
