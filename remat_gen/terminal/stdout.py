"""Write what `-o -` asks for, a file's bytes, whatever the terminal's encoding is; and lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console


def say(lines: Iterable[str], *, stderr: bool = True) -> None:
    """Print lines as they are, whatever the terminal's width is."""
    console = Console(stderr=stderr)
    for line in lines:
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def write_stdout(content: str | bytes) -> None:
    """Write a text as UTF-8, as in a file, or bytes as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content.encode() if isinstance(content, str) else content)
