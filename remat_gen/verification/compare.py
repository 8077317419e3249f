"""Compare two results: bitwise first, then within a tolerance that is stated.

Two floating tensors x (expected) and y agree within tolerance if, with d = y - x,

    max |d| <= k · eps · max |x|   and   ‖d‖₂ <= k · eps · ‖x‖₂,

eps the machine epsilon of their dtype, k = 16, or 4 for dtypes of 16 bits and less. Sums taken in
another order differ by a few eps; a wrong gradient differs in norm by far more. Up to four times a
`noise` is allowed as well: by how much the original itself is off (see `noise`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import torch
from torch import nn

from remat_gen.capture.process.operands import is_bitwise_equal
from remat_gen.verification.outcome import ATTRIBUTES, HELD, Outcome
from remat_gen.verification.tensor_difference import difference

_BY_IDENTITY: Any = object.__eq__

# How much each thing is off by itself, by (kind, name).
Noise: TypeAlias = Mapping[tuple[str, str], float]


class Match(Enum):
    """How well two things agree."""

    BITWISE = "bitwise"
    TOLERANCE = "within tolerance"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The agreement of one thing; `difference` and `tolerance` are largest absolute values."""

    kind: str  # "outputs", "gradients", …
    name: str
    match: Match
    difference: float | None = None
    tolerance: float | None = None
    detail: str = ""


NOISE_FACTOR = 4.0
"""How much of the original's noise is allowed."""


BUILT = "fresh model"  # the kind of what builders made


def compare_built(original: nn.Module, planned: nn.Module) -> tuple[Comparison, ...]:
    """Return which parameters and buffers of a fresh planned model have other numbers."""
    wanted, found = original.state_dict(), planned.state_dict()
    pairs = ((name, t, found.get(name)) for name, t in wanted.items() if torch.is_tensor(t))
    return tuple(
        Comparison(BUILT, name, Match.DIFFERENT, detail="is not as the original builds it")
        for name, a, b in pairs
        if not torch.is_tensor(b)
        or (a.shape, a.dtype) != (b.shape, b.dtype)
        or not is_bitwise_equal(a, b)
    )


def compare_steps(
    expected: Sequence[Outcome],
    actual: Sequence[Outcome],
    noise: Sequence[Noise],
    at: torch.device | None = None,
) -> Iterator[Comparison]:
    """Compare all that steps leave behind, as far as there are steps of both."""
    steps = zip(expected, actual, noise, strict=False)
    for number, (wanted, got, off) in enumerate(steps, 1):
        for _, comparison in compare_step(number, wanted, got, off, at):
            yield comparison


def compare_step(
    number: int, wanted: Outcome, got: Outcome, noise: Noise, at: torch.device | None = None
) -> Iterator[tuple[tuple[str, str], Comparison]]:
    """Compare what a step leaves behind, thing by thing; tensors that differ on the device `at`."""
    for key in dict.fromkeys([*wanted, *got]):
        kind, name = key
        if kind == HELD or (kind == ATTRIBUTES and key not in got):
            continue  # a plan may leave out what forward keeps
        label, there = at_step(name, number), (HELD, name)
        if kind == ATTRIBUTES and there in wanted:
            yield key, compare(kind, label, wanted[there], got[key])
        elif key not in wanted or key not in got:
            side = "the original" if key in wanted else "the planned model"
            detail = f"only {side} has it"
            yield key, Comparison(kind, label, Match.DIFFERENT, detail=detail)
        else:
            yield key, compare(kind, label, wanted[key], got[key], noise.get(key, 0.0), at)


def at_step(name: str, number: int) -> str:
    """Name what a step leaves behind."""
    return f"{name}, step {number}"


def compare(
    kind: str,
    name: str,
    expected: object,
    actual: object,
    noise: float = 0.0,
    at: torch.device | None = None,
) -> Comparison:
    """Compare two leaves: tensors on the CPU, or anything else by equality."""
    if isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
        alike = (expected.shape, expected.dtype) == (actual.shape, actual.dtype)
        if alike and is_bitwise_equal(expected, actual):
            return Comparison(kind, name, Match.BITWISE, 0.0)
        if alike:
            return _compare_values(kind, name, expected, actual, noise, at)
    elif not any(torch.is_tensor(x) for x in (expected, actual)) and _is_same(expected, actual):
        return Comparison(kind, name, Match.BITWISE)
    detail = f"expected {_describe(expected)}, got {_describe(actual)}"
    return Comparison(kind, name, Match.DIFFERENT, detail=detail)


def _is_same(one: Any, other: Any, depth: int = 8) -> bool:
    """Tell whether two things are equal; of a class that cannot tell, whether they hold the same.

    A library's cache beside the loss is another object in each step, and a class of the user's file
    is another one in the generated file.
    """
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        alike = (one.shape, one.dtype) == (other.shape, other.dtype)
        return alike and is_bitwise_equal(one, other)
    kinds = type(one), type(other)
    told_apart = kinds[0] is not kinds[1] or not depth
    held = [getattr(thing, "__dict__", None) for thing in (one, other)]
    if all(k.__eq__ is _BY_IDENTITY for k in kinds) and None not in held:
        told_apart = kinds[0].__qualname__ != kinds[1].__qualname__ or not depth
        one, other = held
    if told_apart:
        return False
    if isinstance(one, dict) and one.keys() == other.keys():
        return all(_is_same(one[key], other[key], depth - 1) for key in one)
    if isinstance(one, list | tuple) and len(one) == len(other):
        return all(_is_same(a, b, depth - 1) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def _compare_values(
    kind: str,
    name: str,
    expected: torch.Tensor,
    actual: torch.Tensor,
    noise: float,
    at: torch.device | None,
) -> Comparison:
    if not (expected.is_floating_point() or expected.is_complex()):
        unequal = int((expected != actual).sum())
        detail = f"{unequal} of {expected.numel()} numbers differ"
        return Comparison(kind, name, Match.DIFFERENT, detail=detail)
    found = difference(expected, actual, at)
    if not found.same_elsewhere:
        return Comparison(kind, name, Match.DIFFERENT, detail="infinities or nan differ")
    relative = (16 if expected.dtype.itemsize > 2 else 4) * torch.finfo(expected.dtype).eps
    rounding, noisy = relative * found.largest, NOISE_FACTOR * noise
    rounded = found.off <= rounding and found.off_norm <= relative * found.norm
    match = Match.TOLERANCE if rounded or found.off <= noisy else Match.DIFFERENT
    return Comparison(kind, name, match, found.off, max(rounding, noisy))


def _describe(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return repr(value)
