"""How values are described in the tables of what a plan takes for granted."""

from __future__ import annotations

from collections import OrderedDict, deque
from decimal import Decimal
from enum import Enum, member
from fractions import Fraction
from functools import partial
from types import MappingProxyType

import numpy as np
import pytest
import torch
from torch import nn

from remat_gen.capture.observe.assumed import describe


class Rate(float):
    """A number of a class of its own."""


class Way(Enum):
    """Members whose `repr` is another in each process."""

    UP = 1
    NAMES = frozenset({"a", "b", "c"})
    CALLED = member(partial(max, key=lambda x: x))


DESCRIBED = [
    (2.0, "2.0"),
    ((1, None), "(1, None)"),
    (torch.channels_last, "torch.channels_last"),
    (torch.sparse_coo, "torch.sparse_coo"),
    (Decimal("1.50"), "Decimal 1.50"),
    (Fraction(1, 3), "Fraction 1/3"),
    (Rate(2.0), "Rate 2.0"),
    (MappingProxyType({"a": 2.0}), "mappingproxy {'a': 2.0}"),
    (OrderedDict(a=[1]), "OrderedDict {'a': list [1]}"),
    (deque([1, 2]), "deque [1, 2]"),
    ({2, 1}, "set [1, 2]"),
    (np.float32(0.5), "float32[] 0.5"),
    (np.array([1, 2], dtype=np.int8), "int8[2] [1, 2]"),
    (torch.tensor([1.0, 2.0]), "float32[2] [1.0, 2.0]"),
    (nn.Parameter(torch.ones(2)), "Parameter float32[2] on cpu"),
    (nn.functional.silu, "function silu"),
    (object(), "object object"),
    (Way.UP, "<Way.UP: 1>"),
    (Way.NAMES, "<Way.NAMES: frozenset ['a', 'b', 'c']>"),
    (Way.CALLED, "<Way.CALLED: partial object>"),
    (
        [{Way.UP}, {(frozenset({"b", "a"}), 1)}],
        "list [set [<Way.UP: 1>], set [tuple [frozenset ['a', 'b'], 1]]]",
    ),
]


@pytest.mark.parametrize(("value", "words"), DESCRIBED, ids=[words for _, words in DESCRIBED])
def test_a_description(value: object, words: str) -> None:
    assert describe(value) == words


def test_large_values_by_a_hash_of_all_of_them() -> None:
    numbers = np.zeros(5000)
    before = describe(numbers)
    numbers[4999] = 1
    assert before.startswith("float64[5000] sha256 ") and describe(numbers) != before
    assert describe([0] * 999 + [1]) != describe([0] * 1000)
