"""Random floats for operations to read, handed out in turn and never copied.

Filling inputs anew for each call of each operation takes longer than many operations, and weights
are read at every length. So there is one run of numbers for all that is read, as long as the
longest inputs and as caches need: what is handed out next was not read for a while.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass

import torch

from remat_gen.capture.device.kinds import kind_of

_PATTERN = 1 << 16  # numbers that are drawn; drawing gigabytes takes longer than the operations
_ALIGNMENT = 512  # bytes, as a GPU's allocator has it
_TURNS = 25  # the most calls before one may read again what a first one did


@dataclass(slots=True)
class FloatPool:
    """Numbers of one type on one device, which repeat `pattern`; `at` is the next place in bytes.

    The pattern is drawn on the CPU: equal on every device.
    """

    pattern: torch.Tensor
    numbers: torch.Tensor
    at: int = 0

    @classmethod
    def of(cls, dtype: torch.dtype, device: torch.device, *, probabilities: bool) -> FloatPool:
        """Draw normal numbers, or probabilities, from a generator of their own."""
        generator = torch.Generator().manual_seed(0)
        drawn = torch.complex64 if dtype.is_complex else torch.float32
        numbers = torch.randn(_PATTERN, generator=generator, dtype=drawn)
        if probabilities:
            numbers = torch.rand(_PATTERN, generator=generator)
        pattern = numbers.to(dtype).to(device)
        return cls(pattern, pattern)

    def take(self, lengths: Collection[int]) -> list[torch.Tensor]:
        """Hand out tensors of these lengths, apart from each other, each with a storage of its own.

        They are to be read only. What was handed out before stays what it is.
        """
        nbytes = [length * self.pattern.itemsize for length in lengths]
        places = [0, *itertools.accumulate(-(-n // _ALIGNMENT) * _ALIGNMENT for n in nbytes)]
        self._reserve(places[-1])
        storage, found = self.numbers.untyped_storage(), []
        for place, size in zip(places, nbytes, strict=False):
            begin = self.at + place
            flat = torch.empty(0, dtype=self.pattern.dtype, device=self.pattern.device)
            found.append(flat.set_(storage[begin : begin + size]))
        self.at += places[-1]
        return found

    def _reserve(self, nbytes: int) -> None:
        """Have so many bytes in one piece at the next place, as often as caches hold them."""
        device = self.pattern.device
        beyond = kind_of(device).beyond_caches_bytes(device)
        rows = -(-(nbytes + min(nbytes * _TURNS, beyond)) // self.pattern.nbytes)
        if rows * self.pattern.nbytes > self.numbers.nbytes:
            self.numbers, self.at = self.pattern.repeat(rows), 0
        if self.at + nbytes > self.numbers.nbytes:
            self.at = 0
