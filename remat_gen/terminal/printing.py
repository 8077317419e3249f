"""What is printed: lines and tables, whatever the terminal's width, and what `-o -` asks for."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text


def say(lines: Iterable[str], *, stderr: bool = True) -> None:
    """Print lines as they are, whatever the terminal's width is."""
    console = Console(stderr=stderr)
    for line in lines:
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def write_stdout(content: str | bytes) -> None:
    """Write a text as UTF-8, whatever the terminal's encoding is, or bytes as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content.encode() if isinstance(content, str) else content)


def number_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, names: int = 0, gap: int = 2
) -> Table:
    """Return a table of numbers; the first columns are of `names`, and all are `gap` apart."""
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i < names else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def word_table(rows: Iterable[tuple[str, str]], width: int | None = None) -> Table:
    """Return a table of labels, at least so wide, and of what they are labels of."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, min_width=width)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(Text(label), Text(text))
    return table


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
