"""Bytes as people read them: in generated files, on the terminal, in tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence


def sizes(amounts: Sequence[int]) -> str:
    """Write numbers of bytes as one, or as from least to most: `4 to 16 KiB`, `512 B to 4 KiB`."""
    least, most = size(min(amounts)), size(max(amounts))
    if least == most:
        return most
    number, unit = least.split()
    return f"{number if most.endswith(f' {unit}') else least} to {most}"


def exact(nbytes: int) -> str:
    """Write a number of bytes in the largest unit that it is whole in: `9GB`, `512MiB`, `77B`."""
    units = {"GB": 10**9, "GiB": 2**30, "MB": 10**6, "MiB": 2**20, "KB": 10**3, "KiB": 2**10}
    found = [(nbytes // unit, name) for name, unit in units.items() if nbytes % unit == 0]
    number, name = min(found, default=(nbytes, "B"))
    return f"{number}{name}"


def size(nbytes: int) -> str:
    """Write a number of bytes with three significant digits: `384 KiB`, `4.25 MiB`, `-2 GiB`."""
    if nbytes < 0:
        return f"-{size(-nbytes)}"
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
