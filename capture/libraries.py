"""Which code is the user's own, and which an installed library's or Python's."""

from __future__ import annotations

import functools
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

_PYTHONS = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
_OURS = Path(__file__).resolve().parents[1]


@functools.cache
def is_library_file(file: str) -> bool:
    """Tell whether a file is an installed library's, Python's, or none (`<string>`)."""
    path = Path(file)
    if file[:1] == "<" or not {"site-packages", "dist-packages"}.isdisjoint(path.parts):
        return file[:1] != "<" or not file.startswith("<ipython")
    return any(path.is_relative_to(folder) for folder in _PYTHONS)


def is_of_library(value: Any) -> bool:
    """Tell whether a function, a class or a module is a library's, or Python's."""
    if isinstance(value, (staticmethod, classmethod, types.MethodType)):
        value = value.__func__
    if isinstance(value, types.FunctionType):
        return is_library_file(value.__code__.co_filename)
    if isinstance(value, types.ModuleType):
        name = value.__name__
    else:
        name = (
            value if isinstance(value, (type, types.BuiltinFunctionType)) else type(value)
        ).__module__
    file = getattr(sys.modules.get(str(name)), "__file__", None)
    return file is None or is_library_file(file)


def reads_for_forward(space: dict[str, Any]) -> bool:
    """Tell whether code with these globals reads on forward's behalf: not torch's machinery."""
    name = str(space.get("__name__"))
    if name.startswith("torch.nn.modules."):
        return name != "torch.nn.modules.module"
    return name.partition(".")[0] not in ("torch", "remat_gen")
