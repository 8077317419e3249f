"""What the pool hands out: numbers that nothing else writes, apart from each other, long unread."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measure_graphs import Builder

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.profile.float_pool import FloatPool
from remat_gen.capture.profile.synthesize import Synthesizer

CPU = torch.device("cpu")
BEYOND_CACHES = kind_of(CPU).beyond_caches_bytes(CPU)


def pool(dtype: torch.dtype = torch.float32) -> FloatPool:
    return FloatPool.of(dtype, CPU, probabilities=False)


def places(tensors: list[torch.Tensor]) -> list[tuple[int, int]]:
    return sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors if t.numel())


@given(st.lists(st.lists(st.integers(0, 300_000), min_size=1, max_size=4), min_size=1, max_size=5))
def test_what_is_taken_at_once_lies_apart(calls: list[list[int]]) -> None:
    numbers = pool(torch.bfloat16)
    for lengths in calls:
        taken = numbers.take(lengths)
        assert [t.numel() for t in taken] == lengths
        assert all(t.untyped_storage().nbytes() == t.nbytes for t in taken)
        found = places(taken)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(found))


def test_numbers_are_read_again_when_caches_have_let_go_of_them() -> None:
    numbers, (first,) = pool(), pool().take([1])
    (first,) = numbers.take([1 << 20])
    between = 0
    while (taken := numbers.take([1 << 20])[0]).data_ptr() != first.data_ptr():
        between += taken.nbytes
    assert between + taken.nbytes >= BEYOND_CACHES


def test_a_small_pool_is_enough_for_small_tensors() -> None:
    numbers = pool()
    numbers.take([1000])
    assert numbers.numbers.nbytes <= 1 << 19


def test_what_was_handed_out_stays_when_more_is_needed() -> None:
    numbers = pool()
    (small,) = numbers.take([5])
    before = small.tolist()
    numbers.take([1 << 20])
    assert small.tolist() == before


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "float8_e5m2", "complex64"])
def test_numbers_of_any_kind_are_finite(dtype: str) -> None:
    (taken,) = pool(getattr(torch, dtype)).take([100_000])
    assert taken.dtype is getattr(torch, dtype)
    assert taken.to(torch.complex128).isfinite().all()


def test_what_an_operation_writes_into_is_its_own() -> None:
    build = Builder()
    x = build.tensor("x", (100,))
    build.tensor("y", (100,), storage="x")
    writes = build.operation("aten.zero_.default", [x], ["y"])
    synthesizer = Synthesizer(build.graph(), {})
    synthesizer.inputs(writes)["x"].zero_()
    assert all(p.numbers.ne(0).all() for p in synthesizer.floats.values())
