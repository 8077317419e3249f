"""Sets of small integers as Python ints: bit i is set where i is in the set."""

from __future__ import annotations

from collections.abc import Iterable


def mask_of(members: Iterable[int]) -> int:
    """Return the set of `members`."""
    mask = 0
    for i in members:
        mask |= 1 << i
    return mask


def members(mask: int) -> list[int]:
    """Return the members of a set, rising."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
