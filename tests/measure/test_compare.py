"""Bitwise, within tolerance, different: each is told from the others."""

from __future__ import annotations

import pytest
import torch

from remat_gen.verification.compare import Match, compare
from remat_gen.verification.tensor_difference import difference, largest

NAN, INF = float("nan"), float("inf")


def match(expected: object, actual: object, noise: float = 0.0) -> Match:
    return compare("outputs", "y", expected, actual, noise).match


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_equal_bits(dtype: torch.dtype) -> None:
    x = torch.arange(12).reshape(3, 4).to(dtype)
    assert match(x, x.t().contiguous().t()) is Match.BITWISE


def test_nan_equals_nan_but_no_number() -> None:
    x = torch.tensor([1.0, NAN, INF])
    assert match(x, x.clone()) is Match.BITWISE
    assert match(x, torch.tensor([1.0, 2.0, INF])) is Match.DIFFERENT
    assert match(torch.tensor([1.0, 2.0, INF]), x) is Match.DIFFERENT
    assert match(x, torch.tensor([1.0, NAN, -INF])) is Match.DIFFERENT
    assert match(x, torch.tensor([1.0, INF, NAN])) is Match.DIFFERENT


def test_the_sign_of_zero_is_a_bit_and_no_difference() -> None:
    assert match(torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 1.0])) is Match.TOLERANCE


@pytest.mark.parametrize(
    ("dtype", "rounding"), [(torch.float32, 1e-7), (torch.float64, 1e-16), (torch.bfloat16, 8e-3)]
)
def test_rounding_is_tolerated_and_more_is_not(dtype: torch.dtype, rounding: float) -> None:
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert match(x.to(dtype), (x * (1 + 2 * rounding)).to(dtype)) is Match.TOLERANCE
    assert match(x.to(dtype), (x * (1 + 40 * rounding)).to(dtype)) is Match.DIFFERENT


def test_many_small_errors_are_seen_where_none_is_large() -> None:
    x = torch.full((10_000,), 1e-9)
    x[0] = 1.0
    assert match(x, x + 1e-6 * (x < 1)) is Match.DIFFERENT


def test_noise_of_the_original_is_allowed() -> None:
    x = torch.ones(10)
    assert match(x, x + 1e-3) is Match.DIFFERENT
    assert match(x, x + 1e-3, noise=5e-4) is Match.TOLERANCE
    assert match(x, x + 1e-2, noise=5e-4) is Match.DIFFERENT


def test_what_is_no_float_must_be_equal() -> None:
    assert match(torch.tensor([1, 2]), torch.tensor([1, 3])) is Match.DIFFERENT
    assert match(torch.tensor([True]), torch.tensor([False])) is Match.DIFFERENT
    assert match(None, None) is Match.BITWISE
    assert match(None, torch.zeros(2)) is Match.DIFFERENT
    assert match(1, 1.0) is Match.DIFFERENT
    assert match("a", "a") is Match.BITWISE


def test_shape_and_dtype_count() -> None:
    comparison = compare("outputs", "y", torch.zeros(2, 3), torch.zeros(3, 2))
    assert comparison.match is Match.DIFFERENT
    assert comparison.detail == "expected float32[2, 3], got float32[3, 2]"
    assert match(torch.zeros(2), torch.zeros(2, dtype=torch.float64)) is Match.DIFFERENT
    assert match(torch.zeros(0), torch.zeros(0)) is Match.BITWISE


def test_nan_is_no_zero_where_another_number_differs() -> None:
    x = torch.tensor([1.0, NAN])
    assert match(x, torch.tensor([1.0 + 1e-7, 0.0])) is Match.DIFFERENT
    assert match(x, torch.tensor([1.0 + 1e-7, NAN])) is Match.TOLERANCE
    most = torch.finfo(torch.float32).max
    assert match(torch.tensor([1.0, INF]), torch.tensor([1.0 + 1e-7, most])) is Match.DIFFERENT


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_parts_are_added_up(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setattr("remat_gen.verification.tensor_difference._AT_ONCE", 8)
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(5, 7, dtype=dtype, generator=generator).t() for _ in range(2))
    found = difference(x, y)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    a, b = (torch.view_as_real(t) if dtype.is_complex else t for t in (x.to(wide), y.to(wide)))
    assert found.largest == largest(x) == a.abs().max()
    assert found.off == (b - a).abs().max()
    assert found.norm == pytest.approx(float(a.norm()), rel=1e-14)  # another order of the sum
    assert found.off_norm == pytest.approx(float((b - a).norm()), rel=1e-14)
    assert found.same_elsewhere
    x[3, 3] = y[3, 3] = NAN
    assert difference(x, y).same_elsewhere and not difference(x, x.nan_to_num()).same_elsewhere
    assert difference(x, y).off <= found.off and largest(x) <= found.largest


def test_nothing_is_off_by_nothing() -> None:
    none = torch.zeros(0, 3)
    assert difference(none, none).off == largest(none) == largest(torch.tensor([NAN])) == 0.0


class Cache:
    """What a library returns beside a loss: nothing says when two are equal."""

    def __init__(self, *held: object) -> None:
        self.held = [*held]


def test_objects_that_cannot_tell_are_the_same_where_they_hold_the_same() -> None:
    x = torch.arange(3.0)
    assert match(Cache(1, x), Cache(1, x.clone())) is Match.BITWISE
    assert match(Cache(Cache(x)), Cache(Cache(x.clone()))) is Match.BITWISE
    assert match(Cache(1, x), Cache(2, x)) is Match.DIFFERENT
    assert match(Cache(x), Cache(x + 1)) is Match.DIFFERENT
    assert match(Cache(x), Cache(x, x)) is Match.DIFFERENT
    assert match(Cache(), object()) is Match.DIFFERENT
    same = type("Cache", (), {"__qualname__": "Cache"})()  # of the generated file
    same.held = [1, x]
    assert match(Cache(1, x), same) is Match.BITWISE


def test_an_object_in_itself_is_no_endless_search() -> None:
    one, other = Cache(), Cache()
    one.held.append(one)
    other.held.append(other)
    assert match(one, other) is Match.DIFFERENT
