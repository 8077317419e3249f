"""Put something else in place of an attribute of torch's, or of a library's, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_INHERITED = object()


@contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """Let a module or a class have another attribute.

    Raises:
        AttributeError: it has none of this name, as in a torch that is too new or too old.
    """
    getattr(owner, name)
    held = vars(owner).get(name, _INHERITED)  # a static method as it is held
    setattr(owner, name, value)
    try:
        yield
    finally:
        if held is _INHERITED:
            delattr(owner, name)
        else:
            setattr(owner, name, held)
