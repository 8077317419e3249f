"""Masks drawn as integers: torch's own masks, and torch's stream after them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from remat_gen.capture.as_eager import draws
from remat_gen.capture.as_eager.draws import compares_53_bits, draw_mask
from remat_gen.capture.as_eager.dropout import dropout_mask

EDGES = [1 << 16, (1 << 16) - 1, (1 << 16) + 1, 8 * (1 << 15), 8 * (1 << 15) + 7, 300_001, 7, 0]
KEPT = [0.9, 0.1, 0.5, 1 / 3, 1 - 2**-53, 2**-53, 5e-324, 1e-9, 0.85]


@pytest.fixture(autouse=True)
def _asked_again() -> Iterator[None]:
    compares_53_bits.cache_clear()
    yield
    compares_53_bits.cache_clear()


def drawn(size: tuple[int, ...], keep: float) -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    return draw_mask(size, keep), torch.get_rng_state()


def by_torch(size: tuple[int, ...], keep: float) -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    return torch.empty(size, dtype=torch.bool).bernoulli_(keep), torch.get_rng_state()


def same(ours: tuple[Tensor, Tensor], torchs: tuple[Tensor, Tensor]) -> bool:
    return all(map(torch.equal, ours, torchs))


@pytest.mark.parametrize("count", EDGES)
def test_every_size_is_torch_s(count: int) -> None:
    assert same(drawn((count,), 0.9), by_torch((count,), 0.9))


@pytest.mark.parametrize("keep", KEPT)
def test_every_probability_is_torch_s(keep: float) -> None:
    size = (3, 1 << 15)
    assert same(drawn(size, keep), by_torch(size, keep))


@settings(max_examples=40, deadline=None)
@given(st.integers(1 << 16, 1 << 18), st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_any_mask_is_torch_s(count: int, keep: float) -> None:
    assert same(drawn((count,), keep), by_torch((count,), keep))


def test_the_limit_parts_the_numbers_where_the_probability_does() -> None:
    """The smallest float above each number is kept, the number itself is not."""
    for number in (1, 2, 3, 2**52 - 1, 2**52, 2**53 - 1):
        share = number / 2**53
        assert number >= math.ceil(share * 2**53)
        assert number < math.ceil(math.nextafter(share, 2.0) * 2**53)


def test_where_torch_draws_otherwise_the_mask_is_torch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `bernoulli_` of 24 bits each, as another build of torch may have it."""

    def other(self: Tensor, p: float, *, generator: torch.Generator | None = None) -> Tensor:
        numbers = torch.empty(self.shape, dtype=torch.int32).random_(generator=generator)
        return self.copy_((numbers & (2**24 - 1)) < p * 2**24)

    monkeypatch.setattr(Tensor, "bernoulli_", other)
    assert not compares_53_bits()
    assert same(drawn((1 << 17,), 0.9), by_torch((1 << 17,), 0.9))


def test_a_kernel_that_draws_as_much_but_moves_the_stream_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bernoulli = Tensor.bernoulli_

    def other(self: Tensor, p: float, *, generator: torch.Generator | None = None) -> Tensor:
        mask = bernoulli(self, p, generator=generator)
        torch.empty(1).uniform_(generator=generator)
        return mask

    monkeypatch.setattr(Tensor, "bernoulli_", other)
    assert not compares_53_bits()


def test_the_answer_is_what_torch_does() -> None:
    """Else all masks would be left to torch, and no other test would see it."""
    torch.manual_seed(3)
    numbers = [
        int(number) & (2**53 - 1) for number in torch.empty(1000, dtype=torch.int64).random_()
    ]
    torch.manual_seed(3)
    mask = torch.empty(1000, dtype=torch.bool).bernoulli_(0.25)
    assert compares_53_bits() == ([n * 2.0**-53 < 0.25 for n in numbers] == mask.tolist())


def test_asking_moves_no_stream() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert isinstance(compares_53_bits(), bool)
    assert torch.equal(before, torch.get_rng_state())


def test_numbers_take_no_more_memory_than_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    empty = torch.empty

    def spied(*args: object, **kwargs: object) -> Tensor:
        made = empty(*args, **kwargs)  # type: ignore[call-overload]
        sizes.append(made.nbytes)
        return made

    in_parts = compares_53_bits()
    monkeypatch.setattr(draws.torch, "empty", spied)
    for count in EDGES:
        sizes.clear()
        draw_mask((count,), 0.9)
        assert len(sizes) == (2 if in_parts and count >= 1 << 16 else 1)
        assert max(sizes) == count
        assert sum(sizes) <= 2 * count


@pytest.mark.parametrize("shape", [(64, 32, 33), (1 << 17, 1), (1, 1 << 17)])
def test_other_layouts_are_drawn_as_torch_does(shape: tuple[int, ...]) -> None:
    backwards = torch.empty(shape[::-1]).permute(*reversed(range(len(shape))))
    for stride in (torch.empty(shape).stride(), backwards.stride()):
        torch.manual_seed(2)
        ours = dropout_mask(shape, stride, 0.8), torch.get_rng_state()
        torch.manual_seed(2)
        mask = torch.empty_strided(shape, stride, dtype=torch.bool).bernoulli_(0.8)
        assert same(ours, (mask, torch.get_rng_state()))
