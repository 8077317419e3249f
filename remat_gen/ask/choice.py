"""Texts that must be one of a few, what is suggested where they are none, and lists of texts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from enum import Enum
from typing import Any, TypeVar

from remat_gen.ir.errors import UsageError

Choice = TypeVar("Choice", bound=Enum)
_NEAR = 4  # names that a message has at most
_LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_COMMA = re.compile(r",\s*(?![^\[]*\])")  # of a list, not inside of a key


def chosen(kind: type[Choice], key: str, text: Any) -> Choice:
    """Return the member that a text names; a member is one already.

    Raises:
        UsageError: it names none; the message has all, and the nearest.
    """
    if isinstance(text, kind):
        return text
    known = [member.value for member in kind]
    if text not in known:
        raise UsageError(f"{key} {text!r} is none of {', '.join(known)}{suggestion(text, known)}")
    return kind(text)


def suggestion(text: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` with the nearest of what is known, or nothing."""
    close = difflib.get_close_matches(text, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def several(texts: Iterable[str] | None) -> tuple[str, ...]:
    """Return the texts of an option that may be repeated, each once: commas do as well."""
    given = [texts] if isinstance(texts, str) else texts or ()  # its letters are none
    parts = (part.strip() for text in given for part in _COMMA.split(text))
    return tuple(dict.fromkeys(filter(None, parts)))


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
