"""Sets of small integers as Python ints: bit i is set where i is in the set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_

import numpy as np

FEW = 16  # members up to which they are looked for one by one


def mask_of(members: Iterable[int]) -> int:
    return reduce(or_, (1 << i for i in members), 0)


def union(masks: Sequence[int], chosen: int) -> int:
    """Return the union of the sets at some places."""
    return reduce(or_, (masks[i] for i in members(chosen)), 0)


def members(mask: int) -> list[int]:
    """Return the members of a set, rising."""
    if mask.bit_count() > FEW:
        found: list[int] = np.flatnonzero(_bits(mask, mask.bit_length())).tolist()
        return found
    few = []
    while mask:
        low = mask & -mask
        few.append(low.bit_length() - 1)
        mask ^= low
    return few


def transposed(masks: Sequence[int]) -> list[int]:
    """Return for each i the set of those whose set has i in it; all are below `len(masks)`."""
    if not masks:
        return []
    rows = np.stack([_bits(mask, len(masks)) for mask in masks])
    columns = np.packbits(rows.T, axis=1, bitorder="little")
    return [int.from_bytes(column.tobytes(), "little") for column in columns]


def _bits(mask: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    data = np.frombuffer(mask.to_bytes((count + 7) // 8, "little"), np.uint8)
    return np.unpackbits(data, count=count, bitorder="little")
