"""A schedule that was decided before, by name: of this problem, or of one that it has grown from.

Names are those of the plan file, so that an older plan can be read for a newer graph.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

NAME = "committed"
"""The strategy of a schedule that was kept, or decided again beside what was kept."""

Segments = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """The names of what runs in the forward segments 0 … n-1, and in the backward ones n-1 … 0."""

    forward: Segments
    backward: Segments

    def names(self) -> tuple[str, ...]:
        """Return the operations of forward in order."""
        return tuple(chain.from_iterable(self.forward))

    def starts(self) -> tuple[str, ...]:
        """Return the first operation of each block."""
        return tuple(segment[0] for segment in self.forward if segment)

    def reruns(self) -> dict[str, tuple[str, ...]]:
        """Return the re-runs that stand before each backward operation, which stand in order."""
        forward = set(self.names())
        found: dict[str, tuple[str, ...]] = {}
        pending: list[str] = []
        for name in chain.from_iterable(self.backward):
            if name in forward:
                pending.append(name)
            else:
                found[name] = tuple(pending)
                pending = []
        return found


def renamed(committed: Committed, names: Sequence[str]) -> Committed:
    """Return a schedule under the names of now, where one word for another gives them; else as is.

    A variable called otherwise renames what is made in its line, and gradients with it. `names`
    are the operations of the newer version, each once.
    """
    there = set(names)
    old = tuple(dict.fromkeys(chain(*committed.forward, *committed.backward)))
    gone = [name for name in old if name not in there]
    new = there.difference(old)
    if not gone or len(gone) != len(new):
        return committed
    for word, other in _words(gone[0], new):
        now = {name: _with(name, word, other) for name in gone}
        if set(now.values()) == new:
            return replace(
                committed,
                forward=_in_words(committed.forward, now),
                backward=_in_words(committed.backward, now),
            )
    return committed


def _words(name: str, others: set[str]) -> Iterator[tuple[str, str]]:
    """Yield what stands in the first place in which a name differs from another, in both."""
    parts = name.split(".")
    for other in sorted(others):
        pairs = zip(parts, other.split("."), strict=False)
        one, their = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
        yield _without_common(one.split("_"), their.split("_"))


def _without_common(one: list[str], other: list[str]) -> tuple[str, str]:
    """Return two names without the words that they begin and end with both."""
    while len(one) > 1 and len(other) > 1 and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while len(one) > 1 and len(other) > 1 and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    return "_".join(one), "_".join(other)


def _with(name: str, word: str, other: str) -> str:
    return re.sub(rf"(?<![^._]){re.escape(word)}(?![^._])", lambda _: other, name)


def _in_words(segments: Segments, now: dict[str, str]) -> Segments:
    return tuple(tuple(now.get(name, name) for name in segment) for segment in segments)
