"""Values that do as well as those that forward reads: what else one configuration may become.

JSON has lists and no tuples, people write 1 for 1.0, and a trainer switches off a cache that no
step in training has. Forward runs on fakes once more with all such values; where it then does
something else, with one kind after the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn

from remat_gen.capture.observe.assumed import NOT_SET, fetch, is_plain
from remat_gen.capture.process.libraries import is_of_library

_ITEM = re.compile(r"(.*)\[([^\[\]]+)\]")
_SWITCHES = ("use_cache",)  # what trainers switch off


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands: in a dict, a list, or what has the attributes of an object."""

    path: str
    owner: Any
    key: Any
    of_library: bool = False

    @property
    def value(self) -> Any:
        return self.owner[self.key]


def as_good(model: nn.Module, paths: Iterable[str], differs: Callable[[], bool]) -> dict[str, Any]:
    """Return by path the other values with which forward does not differ."""
    places = [place for path in paths if (place := _place(model, path))]
    kinds = [
        [(place, other) for place in places if (other := kind(place)) is not NOT_SET]
        for kind in (_other_sequence, _other_number, _switched_off)
    ]
    kinds = [kind for kind in kinds if kind]
    same = [pair for kind in kinds for pair in kind]
    if same and _differs_with(same, differs):
        same = []
        for kind in kinds if len(kinds) > 1 else ():
            same += kind if not _differs_with([*same, *kind], differs) else []
    return {place.path: other for place, other in same}


def _place(model: nn.Module, path: str) -> _Place | None:
    """Return where a value stands; None in a class, a file, or what torch made: no configuration.

    What a tuple has cannot be another.
    """
    if ":" in path or "__class__" in path:
        return None
    if item := _ITEM.fullmatch(path):
        owner, key = fetch(model, item[1], None), item[2]
        place = _Place(path, owner, int(key) if key.isdigit() else key)
        has = place.key in owner if type(owner) is dict else type(owner) is list
        return place if has else None
    above, _, name = path.rpartition(".")
    holder = fetch(model, above, None) if above else model
    kind = type(holder)
    if kind is type or kind.__module__.partition(".")[0] == "torch":
        return None
    owner = getattr(holder, "__dict__", {})
    return _Place(path, owner, name, is_of_library(kind)) if name in owner else None


def _differs_with(others: list[tuple[_Place, Any]], differs: Callable[[], bool]) -> bool:
    """Tell whether forward differs while other values are there."""
    before = [(place, place.value) for place, _ in others]
    try:
        for place, other in others:
            place.owner[place.key] = other
        return differs()
    finally:
        for place, value in before:
            place.owner[place.key] = value


def _other_sequence(place: _Place) -> Any:
    value = place.value
    return _converted(value) if type(value) in (list, tuple) else NOT_SET


def _converted(value: Any) -> Any:
    """Return a list for a tuple, and the other way around, of what is plain."""
    if type(value) not in (list, tuple):
        return value if is_plain(value) else NOT_SET
    inside = [*map(_converted, value)]
    kind = tuple if type(value) is list else list
    return NOT_SET if NOT_SET in inside else kind(inside)


def _other_number(place: _Place) -> Any:
    """Return 1 for 1.0, where people wrote it: a library writes its numbers itself."""
    value = NOT_SET if place.of_library else place.value
    return int(value) if type(value) is float and value.is_integer() else NOT_SET


def _switched_off(place: _Place) -> Any:
    return False if place.value is True and place.path.endswith(_SWITCHES) else NOT_SET
