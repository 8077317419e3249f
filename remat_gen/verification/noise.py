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

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import torch

from remat_gen.verification.compare import NOISE_FACTOR, largest_difference, relative_difference
from remat_gen.verification.outcome import Outcome

Noise: TypeAlias = Mapping[tuple[str, str], float]
GRADIENTS = ("gradients", "input gradients")

_LARGEST_NOISE = 1024
_LARGEST_NOISE_IN_16_BITS = 16
_SAME = 1e-3  # of norm and largest: gradients that differ by more are not of the same numbers


def noise_of_repeats(once: Sequence[Outcome], again: Sequence[Outcome]) -> list[Noise]:
    """Return how far each thing moves from one run to another, which may have more steps."""
    return [_moved(*pair) for pair in zip(once, again, strict=False)]


def noise_of_errors(
    once: Sequence[Outcome], nudged: Sequence[Outcome], double: Sequence[Outcome]
) -> list[Noise]:
    """Return each gradient's backward error or rounding error, whichever is larger.

    `double` is empty where the model does not run in double precision; it counts where it has drawn
    the same numbers.
    """
    backward = _noise_of_gradients(once, nudged, backward_error)
    counts = double and _random_state(once) == _random_state(double)
    rounding = _noise_of_gradients(once, double, rounding_error) if counts else backward
    return [larger(*pair) for pair in zip(backward, rounding, strict=True)]


def larger(one: Noise, other: Noise) -> Noise:
    """Return the larger noise of each thing."""
    return {key: max(one.get(key, 0.0), other.get(key, 0.0)) for key in {**one, **other}}


def backward_error(gradient: object, nudged: object, largest_of_all: float) -> float:
    """Return the noise of a gradient, from a second one for nudged parameters.

    `largest_of_all` is the largest absolute value among all gradients of the step.
    """
    if not isinstance(gradient, torch.Tensor) or gradient.dtype.itemsize <= 2:
        return 0.0
    if not gradient.is_floating_point():
        return 0.0
    return min(largest_difference(gradient, nudged), _bound(gradient.dtype, largest_of_all))


def rounding_error(gradient: object, double: object, largest_of_all: float) -> float:
    """Return the noise of a gradient, from the same one in double precision."""
    if not isinstance(gradient, torch.Tensor) or not gradient.numel():
        return 0.0
    largest = float(gradient.abs().max())
    same = relative_difference(gradient, double) <= _SAME
    same = same and largest_difference(gradient, double) <= _SAME * largest
    return backward_error(gradient, double, largest_of_all) if same else 0.0


def _moved(one: Outcome, other: Outcome) -> Noise:
    gradients, noise = _largest_gradient(one), {}
    for key, value in one.items():
        moved = largest_difference(value, other.get(key))
        if moved and isinstance(value, torch.Tensor):
            largest = gradients if key[0] in GRADIENTS else _largest([value])
            noise[key] = min(moved, _bound(value.dtype, largest))
    return noise


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
    error: Callable[[object, object, float], float],
) -> list[Noise]:
    return [
        {
            key: error(value, other.get(key), largest)
            for key, value in one.items()
            if key[0] in GRADIENTS
        }
        for one, other in zip(once, others, strict=True)
        for largest in [_largest_gradient(one)]
    ]


def _largest_gradient(outcome: Outcome) -> float:
    return _largest(value for (kind, _), value in outcome.items() if kind in GRADIENTS)


def _largest(values: Iterable[object]) -> float:
    """Return the largest finite absolute value of tensors."""
    finite = (value[value.isfinite()] for value in values if isinstance(value, torch.Tensor))
    return max((float(numbers.abs().max()) for numbers in finite if numbers.numel()), default=0.0)
