"""The user's text inside comments and docstrings: data, never code."""

from __future__ import annotations

import re

from remat_gen.ir.graph import Source

_BETWEEN_NUMBERS = re.compile(r"(?<=\d)_(?=\d)")
_WIDTH = 88  # of a comment, indented twice, within a line of 100


def prose(text: str) -> str:
    """Return a text that can neither end a comment or a docstring nor escape anything in it."""
    return comment(text).replace("\\", "/").replace('"', "'")


def comment(text: str) -> str:
    """Return a text that can stand in a comment: on one line, else as the user wrote it."""
    return "".join(c if c.isprintable() else " " for c in text).strip()


def user_line(source: Source) -> str:
    """Return `gpt.py:22  q, k, v = …` for a comment, or "" where the line is unknown."""
    if not source.file:
        return ""
    text = comment(f"{source.file}:{source.line}  {source.text}")
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1].rstrip() + "…"


def camel(text: str) -> str:
    """Return a class name's part: `ln_1` becomes `Ln1`, and `layer2_0` is not `layer_20`."""
    parted = _BETWEEN_NUMBERS.sub("-", text.replace(".", "_"))
    return "".join(part[:1].upper() + part[1:] for part in parted.split("_")).replace("-", "_")
