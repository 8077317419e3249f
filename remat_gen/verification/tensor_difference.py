"""How far one tensor is off another: in double precision, part by part.

A model's gradients are compared many times over, and widened they take two to four times their
bytes. In parts they take no room to speak of, and are compared on the device that they come from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

_AT_ONCE = 1 << 22  # numbers: 32 MiB in double precision
_WORTH_A_COPY = 1 << 16  # numbers; fewer are compared before they had been copied


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest absolute value and the 2-norm of a tensor, and of what another is off by.

    Both where the first is finite; `same_elsewhere` tells whether its infinities and nan are the
    other's as well.
    """

    largest: float = 0.0
    norm: float = 0.0
    off: float = 0.0
    off_norm: float = 0.0
    same_elsewhere: bool = True

    @property
    def relative(self) -> float:
        """How far the two are apart, as a share of the first one's norm."""
        return self.off_norm / self.norm if self.norm and self.same_elsewhere else math.inf


def difference(
    expected: torch.Tensor, actual: torch.Tensor, at: torch.device | None = None
) -> Difference:
    """Compare two floating or complex tensors of one shape, on a device (none: where they are)."""
    at = at if expected.numel() >= _WORTH_A_COPY else None
    pairs = zip(_parts(expected), _parts(actual), strict=True)
    rows = [_of_part(x.to(at).double(), y.to(at).double()) for x, y in pairs]
    if not rows:
        return Difference()
    largest, norms, off, off_norms, unlike = torch.stack(rows).cpu().unbind(1)
    norm, off_norm = (float(torch.linalg.vector_norm(n)) for n in (norms, off_norms))
    return Difference(float(largest.max()), norm, float(off.max()), off_norm, not unlike.any())


def largest(tensor: torch.Tensor) -> float:
    """Return the largest finite absolute value of a tensor, 0 if there is none."""
    numbers = _real(tensor)
    if not numbers.numel():
        return 0.0
    found = max(abs(float(bound)) for bound in numbers.aminmax())
    if math.isfinite(found):
        return found
    finite = numbers[numbers.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _of_part(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    finite = x.isfinite()
    same = finite | (x == y) | (x.isnan() & y.isnan())
    numbers, off = x.where(finite, 0.0), (y - x).where(finite, 0.0)
    norms = map(torch.linalg.vector_norm, (numbers, off))
    (norm, off_norm), unlike = norms, (~same).any().double()
    return torch.stack([numbers.abs().max(), norm, off.abs().max(), off_norm, unlike])


def _parts(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    numbers = _real(tensor).reshape(-1)
    return numbers.split(_AT_ONCE) if numbers.numel() else ()


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """View complex numbers as pairs."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
