"""Texts that must be one of a few, and lists of texts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from enum import Enum
from typing import Any, TypeVar

from remat_gen.ir.errors import UsageError

Choice = TypeVar("Choice", bound=Enum)
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
