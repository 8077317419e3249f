"""Compare two results: bitwise first, then within a tolerance that is stated.

Two floating tensors x (expected) and y agree within tolerance if, with d = y - x,

    max |d| <= k · eps · max |x|   and   ‖d‖₂ <= k · eps · ‖x‖₂,

eps the machine epsilon of their dtype, k = 16, or 4 for dtypes of 16 bits and less. Sums taken in
another order differ by a few eps; a wrong gradient differs in norm by far more. Up to four times a
`noise` is allowed as well: by how much the original itself is off (see `noise`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import torch

from remat_gen.verification.outcome import Outcome


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


def compare_steps(
    expected: Sequence[Outcome],
    actual: Sequence[Outcome],
    noise: Sequence[Mapping[tuple[str, str], float]],
) -> Iterator[Comparison]:
    """Compare all that steps leave behind, as far as there are steps of both."""
    for step, (wanted, got) in enumerate(zip(expected, actual, strict=False)):
        for kind, name in dict.fromkeys([*wanted, *got]):
            key = (kind, name)
            label = f"{name}, step {step + 1}"
            if key not in wanted or key not in got:
                side = "the original" if key in wanted else "the planned model"
                detail = f"only {side} has it"
                yield Comparison(kind, label, Match.DIFFERENT, detail=detail)
            else:
                yield compare(kind, label, wanted[key], got[key], noise[step].get(key, 0.0))


def compare(
    kind: str, name: str, expected: object, actual: object, noise: float = 0.0
) -> Comparison:
    """Compare two leaves: tensors on the CPU, or anything else by equality."""
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        return _compare_plain(kind, name, expected, actual)
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        detail = f"expected {_describe(expected)}, got {_describe(actual)}"
        return Comparison(kind, name, Match.DIFFERENT, detail=detail)
    if is_bitwise_equal(expected, actual):
        return Comparison(kind, name, Match.BITWISE, 0.0)
    return _compare_values(kind, name, expected, actual, noise)


def is_bitwise_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tell whether two tensors of one shape and dtype hold the same bits (nan equals nan)."""
    if a.dtype is torch.bool:
        return torch.equal(a, b)
    return torch.equal(_bits(a), _bits(b))


def largest_difference(a: object, b: object) -> float:
    """Return max |a - b| of two floating tensors of one shape; 0 for anything else."""
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return 0.0
    if a.shape != b.shape or not (a.is_floating_point() or a.is_complex()):
        return 0.0
    if a.dtype is b.dtype and is_bitwise_equal(a, b):
        return 0.0  # most are, and widening takes ten times as long
    difference = _wide(b) - _wide(a)
    return _largest(difference[difference.isfinite()])


def relative_difference(a: object, b: object) -> float:
    """Return ‖a - b‖₂ / ‖a‖₂ of two floating tensors of one shape; infinity for anything else."""
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)) or a.shape != b.shape:
        return math.inf
    norm = _norm(_wide(a))
    return _norm(_wide(b) - _wide(a)) / norm if norm else math.inf


def _compare_plain(kind: str, name: str, expected: object, actual: object) -> Comparison:
    tensors = isinstance(expected, torch.Tensor) or isinstance(actual, torch.Tensor)
    if not tensors and type(expected) is type(actual) and expected == actual:
        return Comparison(kind, name, Match.BITWISE)
    detail = f"expected {_describe(expected)}, got {_describe(actual)}"
    return Comparison(kind, name, Match.DIFFERENT, detail=detail)


def _compare_values(
    kind: str, name: str, expected: torch.Tensor, actual: torch.Tensor, noise: float
) -> Comparison:
    if not (expected.is_floating_point() or expected.is_complex()):
        unequal = int((expected != actual).sum())
        detail = f"{unequal} of {expected.numel()} numbers differ"
        return Comparison(kind, name, Match.DIFFERENT, detail=detail)
    x, y = _wide(expected), _wide(actual)
    finite = x.isfinite()
    if not torch.equal(x[~finite].nan_to_num(), y[~finite].nan_to_num()):
        return Comparison(kind, name, Match.DIFFERENT, detail="infinities or nan differ")
    x, d = x[finite], (y - x)[finite]
    relative = _relative_tolerance(expected.dtype)
    rounding, noisy, largest = relative * _largest(x), NOISE_FACTOR * noise, _largest(d)
    rounded = largest <= rounding and _norm(d) <= relative * _norm(x)
    match = Match.TOLERANCE if rounded or largest <= noisy else Match.DIFFERENT
    return Comparison(kind, name, match, largest, max(rounding, noisy))


def _relative_tolerance(dtype: torch.dtype) -> float:
    return (16 if dtype.itemsize > 2 else 4) * torch.finfo(dtype).eps


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _norm(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor))


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def _describe(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return repr(value)
