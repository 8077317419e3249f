"""Plain values that forward puts on modules for others to read: how many rows a step had."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

from torch import nn


@contextlib.contextmanager
def watched_values(model: nn.Module) -> Iterator[dict[str, Any]]:
    """Note by path what a forward puts on modules of a model that is no tensor: what comes last."""
    names = {id(module): name for name, module in model.named_modules()}
    found: dict[str, Any] = {}
    plain = nn.Module.__setattr__

    def put(owner: nn.Module, name: str, value: Any) -> None:
        plain(owner, name, value)
        if id(owner) in names and name != "training" and name in vars(owner):
            path = f"{names[id(owner)]}.{name}".lstrip(".")
            found.pop(path, None)
            if is_plain(value):
                found[path] = value

    nn.Module.__setattr__ = put  # type: ignore[method-assign, assignment]
    try:
        yield found
    finally:
        nn.Module.__setattr__ = plain  # type: ignore[method-assign]


def is_plain(value: object) -> bool:
    """Tell whether Python's own words for a value make the same one."""
    if type(value) is tuple:
        return all(map(is_plain, value))
    if isinstance(value, float):
        return type(value) is float and math.isfinite(value)
    return value is None or type(value) in (bool, int, str)
