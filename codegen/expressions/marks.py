"""Marks: placeholders for names inside statements, until the names are known.

A statement is written before it is decided what its variables are called, because blocks that do
the same work must read the same. A mark is `⟦kind:owner:name⟧`, with characters that no source has:

    value     a local variable             kept   an attribute of what a block keeps (owner: block)
    argument  a parameter, buffer or input  tangent  an incoming gradient
    length    a length of the inputs that varies      compiled  a function that is compiled
    number    a number that is another one in each block of a class
    leaving   a gradient that is handed over, by the argument that it is of
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

from remat_gen.ir.size import Size, write

_OPEN, _SEPARATOR, _CLOSE = "\ue000", "\ue001", "\ue002"  # private use: in no one's source
MARK = re.compile(f"{_OPEN}([a-z]+){_SEPARATOR}(-?\\d+){_SEPARATOR}([^{_CLOSE}]*){_CLOSE}")
IN_ALL = frozenset("length compiled".split())  # kinds that mean the same in all blocks


@dataclass(frozen=True, slots=True)
class Mark:
    """A placeholder: `owner` is the block that keeps the value, -1 for all other kinds."""

    kind: str
    owner: int
    name: str

    def __str__(self) -> str:
        return f"{_OPEN}{self.kind}{_SEPARATOR}{self.owner}{_SEPARATOR}{self.name}{_CLOSE}"


def value(name: str) -> Mark:
    """Mark a local variable for a storage."""
    return Mark("value", -1, name)


def kept(owner: int, name: str) -> Mark:
    """Mark a storage that a block keeps beyond the function that made it."""
    return Mark("kept", owner, name)


def argument(name: str) -> Mark:
    """Mark a parameter, buffer or input of the model."""
    return Mark("argument", -1, name)


def tangent(name: str) -> Mark:
    """Mark an incoming gradient, an argument of the last block's backward."""
    return Mark("tangent", -1, name)


def length(name: str) -> Mark:
    """Mark a length of the inputs that varies from step to step."""
    return Mark("length", -1, name)


def compiled(key: str) -> Mark:
    """Mark the function of a part, by its text's key."""
    return Mark("compiled", -1, key)


def number(name: str) -> Mark:
    """Mark a number that each block of a class is handed by this name."""
    return Mark("number", -1, name)


def leaving(name: str) -> Mark:
    """Mark the gradient of an argument, where it is handed over."""
    return Mark("leaving", -1, name)


def written(size: Size | int) -> str:
    """Write a size with marks."""
    return write(size, lambda name: str(length(name)))


@functools.lru_cache(1 << 15)  # each statement is asked many times
def find(text: str) -> tuple[Mark, ...]:
    """Return the marks in a text, in order, with repetitions."""
    return tuple(Mark(kind, int(owner), name) for kind, owner, name in MARK.findall(text))


def assigned(text: str) -> str:
    """Return what a statement assigns to, or ""; a mark's name may have a ` = ` in it too."""
    hidden = MARK.sub(lambda m: "_" * len(m[0]), text)
    return text[: max(hidden.find(" = "), 0)]


def fill(text: str, name_of: Callable[[Mark], str]) -> str:
    """Replace each mark by its name."""
    return MARK.sub(lambda m: name_of(Mark(m[1], int(m[2]), m[3])), text)
