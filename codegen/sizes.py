"""Bytes as people read them."""

from __future__ import annotations


def size(nbytes: int) -> str:
    """Write a number of bytes with three significant digits: `384 KiB`, `4.25 MiB`."""
    if nbytes < 1024:
        return f"{nbytes} B"
    amount = float(nbytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        amount /= 1024
        if amount < 1024 or unit == "TiB":
            break
    digits = max(0, 2 - len(str(int(amount))) + 1)
    text = f"{amount:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"
