"""A committed schedule whose model is the same but for one name: a variable, or an attribute.

The names of operations come from the user's program, so that a variable called otherwise renames
what is made in its line, and gradients with it. All of it follows from one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from remat_gen.solver.stable.committed_schedule import Committed, Segments


def renamed(committed: Committed, names: Sequence[str]) -> Committed:
    """Return a schedule under the names of now, where one word for another gives them; else as is.

    `names` are the operations of the newer version, each once.
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
