"""By how much the original is off by itself: there is no holding the planned model to less.

*Repeats*: where a GPU adds in any order, the original differs from run to run. On the CPU it does
not, or nothing is compared (`repeated_steps`).

*Backward error*: a gradient that vanishes in exact arithmetic, as that of a bias before a
BatchNorm, consists of rounding alone. Its noise is how far the original's own gradient moves when
all parameters move to the next number (Higham, "Accuracy and Stability of Numerical Algorithms",
1.5).

*Rounding error*: a gradient that is summed over thousands of rows is off by more than a few eps
where terms cancel, in the original as in any other order of the sum. Its noise is how far the
original's own gradient is from what the original gives in double precision, where that is the same
gradient: a model may draw other numbers there, or go another way where a comparison is close.

All count up to 1024 · eps · the largest gradient of the step (of what is no gradient: its own
largest number), so that no error of that size passes for noise. In 16 bits, where the next number
is far away, repeats count up to 16 · eps, and errors not at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from remat_gen.verification.compare import NOISE_FACTOR, Comparison, Noise, compare_step
from remat_gen.verification.outcome import Outcome
from remat_gen.verification.tensor_difference import Difference, difference, largest

GRADIENTS = ("gradients", "input gradients")

_LARGEST_NOISE = 1024
_LARGEST_NOISE_IN_16_BITS = 16
_SAME = 1e-3  # of norm and largest: gradients that differ by more are not of the same numbers


def compare_repeats(
    once: Sequence[Outcome], again: Sequence[Outcome], at: torch.device | None = None
) -> tuple[list[Noise], list[Comparison]]:
    """Return how far each thing moves from one run to another, and the comparison of all.

    The second run may have more steps. What moves further than noise can is different.
    """
    noise, comparisons = list[Noise](), list[Comparison]()
    for number, (one, other) in enumerate(zip(once, again, strict=False), 1):
        most = _largest_noise(one)
        found = dict(compare_step(number, one, other, most, at))
        moved = ((key, c.difference or 0.0) for key, c in found.items())
        noise.append({key: min(off, most[key]) for key, off in moved if 0 < off < math.inf})
        comparisons += found.values()
    return noise, comparisons


def noise_of_errors(
    once: Sequence[Outcome],
    nudged: Sequence[Outcome],
    double: Sequence[Outcome],
    at: torch.device | None = None,
) -> list[Noise]:
    """Return each gradient's backward error or rounding error, whichever is larger.

    `double` is empty where the model does not run in double precision; it counts where it has drawn
    the same numbers.
    """
    backward = _noise_of_gradients(once, nudged, backward_error, at)
    counts = double and _random_state(once) == _random_state(double)
    rounding = _noise_of_gradients(once, double, rounding_error, at) if counts else backward
    return [larger(*pair) for pair in zip(backward, rounding, strict=True)]


def larger(one: Noise, other: Noise) -> Noise:
    """Return the larger noise of each thing."""
    return {key: max(one.get(key, 0.0), other.get(key, 0.0)) for key in {**one, **other}}


def backward_error(
    gradient: object, nudged: object, largest_of_all: float, at: torch.device | None = None
) -> float:
    """Return the noise of a gradient, from a second one for nudged parameters.

    `largest_of_all` is the largest absolute value among all gradients of the step.
    """
    found, most = _errors(gradient, nudged, largest_of_all, at)
    return min(found.off, most) if math.isfinite(found.off) else 0.0


def rounding_error(
    gradient: object, double: object, largest_of_all: float, at: torch.device | None = None
) -> float:
    """Return the noise of a gradient, from the same one in double precision."""
    found, most = _errors(gradient, double, largest_of_all, at)
    same = found.relative <= _SAME and found.off <= _SAME * found.largest
    return min(found.off, most) if same else 0.0


def _errors(
    one: object, other: object, largest_of_all: float, at: torch.device | None
) -> tuple[Difference, float]:
    """Return how far gradients are apart, none in 16 bits, and the most that counts as noise."""
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return Difference(), 0.0
    if one.shape != other.shape or one.dtype.itemsize <= 2:
        return Difference(), 0.0
    if not (one.is_floating_point() and other.is_floating_point()):
        return Difference(), 0.0
    return difference(one, other, at), _bound(one.dtype, largest_of_all)


def _largest_noise(outcome: Outcome) -> Noise:
    """Return the most that counts as noise of each thing."""
    gradients = _largest_gradient(outcome)
    return {
        key: _bound(value.dtype, gradients if key[0] in GRADIENTS else largest(value))
        for key, value in outcome.items()
        if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
    }


def _bound(dtype: torch.dtype, largest: float) -> float:
    """Return the most that counts as noise, NOISE_FACTOR times of which are allowed."""
    factor = _LARGEST_NOISE if dtype.itemsize > 2 else _LARGEST_NOISE_IN_16_BITS
    return factor * torch.finfo(dtype).eps * largest / NOISE_FACTOR


def _random_state(outcomes: Sequence[Outcome]) -> list[bytes]:
    """Return the states of the generators after each step."""
    states = (v for one in outcomes for (kind, _), v in one.items() if kind == "random state")
    return [state.numpy().tobytes() for state in states if isinstance(state, torch.Tensor)]


def _noise_of_gradients(
    once: Sequence[Outcome],
    others: Sequence[Outcome],
    error: Callable[[object, object, float, torch.device | None], float],
    at: torch.device | None,
) -> list[Noise]:
    return [
        {
            key: error(value, other.get(key), most, at)
            for key, value in one.items()
            if key[0] in GRADIENTS
        }
        for one, other in zip(once, others, strict=True)
        for most in [_largest_gradient(one)]
    ]


def _largest_gradient(outcome: Outcome) -> float:
    gradients = (value for (kind, _), value in outcome.items() if kind in GRADIENTS)
    return max((largest(g) for g in gradients if isinstance(g, torch.Tensor)), default=0.0)
