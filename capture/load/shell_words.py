"""Words of a command as a shell takes them, in quotes that people can read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

_MEANS_MORE = re.compile(r'["$`\\!]')  # within double quotes


def shell_word(text: str) -> str:
    """Return a word of a command: `"batch['pos']:0"`, where `shlex.quote` doubles the quotes."""
    doubled = "'" in text and not _MEANS_MORE.search(text)
    return f'"{text}"' if doubled else shlex.quote(text)


def shell_command(words: Iterable[str]) -> str:
    """Return the command of some words."""
    return " ".join(map(shell_word, words))
