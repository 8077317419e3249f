"""What a message suggests where no value is called as the user says."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_NEAR = 4  # names that a message has at most
_LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")


def near_names(wanted: str, names: Iterable[str]) -> str:
    """Return words on the values nearest to a name, layers told by `*`; "" where none is near.

    The name of a module, which is no value, has the values in the module.
    """
    patterns = list(dict.fromkeys(_LAYER.sub("*", name) for name in names))
    asked = _LAYER.sub("*", wanted.strip(".")).removeprefix("*.")
    inside = [p for p in patterns if f".{asked}." in f".{p.rpartition('.')[0]}."]
    if inside:
        more = ", …" if len(inside) > _NEAR else ""
        return f"{wanted} is a module, with {', '.join(inside[:_NEAR])}{more}"
    last = {pattern.rpartition(".")[2]: pattern for pattern in reversed(patterns)}
    found = difflib.get_close_matches(asked, [*last, *patterns], n=_NEAR, cutoff=0.5)
    found += difflib.get_close_matches(asked.rpartition(".")[2], last, n=_NEAR, cutoff=0.5)
    near = list(dict.fromkeys(last.get(name, name) for name in found))[:_NEAR]
    return f"near are {', '.join(near)}" if near else ""
