"""Ratios of step times, and an interval that holds what it promises."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from itertools import pairwise, permutations

import pytest
import torch

from remat_gen.verification.paired_times import (
    interleaved_us,
    median_interval,
    order_of_round,
    time_ratio,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("n", "low", "high"),
    [(6, 1, 6), (9, 2, 8), (10, 2, 9), (15, 4, 12), (20, 6, 15), (25, 8, 18)],
)
def test_ranks_are_those_of_the_tables(n: int, low: int, high: int) -> None:
    """Conover, table A3: 95 % intervals for the median."""
    assert median_interval([float(i) for i in range(1, n + 1)]) == (low, high)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_values_give_their_range(n: int) -> None:
    assert median_interval([float(i) for i in range(n)]) == (0.0, n - 1.0)


def test_coverage() -> None:
    generator = random.Random(0)
    missed = 0
    for _ in range(1000):
        low, high = median_interval([math.exp(generator.gauss(0, 1)) for _ in range(12)])
        missed += not low <= 1.0 <= high
    assert 10 <= missed <= 50


@pytest.mark.alone
def test_the_slower_step_is_seen() -> None:
    order: list[str] = []

    def original() -> None:
        order.append("o")
        time.sleep(0.002)

    def planned() -> None:
        order.append("p")
        time.sleep(0.004)

    ratio = time_ratio(original, planned, CPU, pairs=6)

    assert order == list("op" + "oppo" * 3)
    assert ratio.low <= ratio.median <= ratio.high
    assert ratio.median > 1.3
    assert ratio.planned_us > ratio.original_us > 2000
    assert ratio.pairs == 6


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8])
def test_rounds_are_balanced(count: int) -> None:
    """Each step stands at each place, and directly behind each other one, equally often."""
    rounds = [order_of_round(count, i) for i in range(2 * count)]
    for place in range(count):
        assert sorted(row[place] for row in rounds) == sorted([*range(count)] * 2)
    behind = Counter(pair for row in rounds for pair in pairwise(row))
    assert behind == {pair: 2 for pair in permutations(range(count), 2)}


def test_all_steps_are_timed_in_every_round() -> None:
    order: list[str] = []
    times = interleaved_us([lambda n=n: order.append(n) for n in "abc"], CPU, rounds=2)

    assert [len(mine) for mine in times] == [2, 2, 2]
    assert order[:3] == list("abc")
    assert sorted(order[3:6]) == sorted(order[6:]) == list("abc")
    assert order[3:6] != order[6:]
