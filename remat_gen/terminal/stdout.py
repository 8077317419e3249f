"""Write what `-o -` asks for: a file's bytes, whatever the terminal's encoding is."""

from __future__ import annotations

import sys


def write_stdout(content: str | bytes) -> None:
    """Write a text as UTF-8, as in a file, or bytes as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content.encode() if isinstance(content, str) else content)
