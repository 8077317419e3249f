"""Which code is the user's own, and which an installed library's or Python's."""

from __future__ import annotations

import functools
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

from torch import nn

_PYTHONS = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
_COMPUTE = ("torch.nn.modules.", "torch.nn.utils.parametrizations.", "torch.distributions.")
ASKING = "ask_and_tell"  # the function that tells of attributes, which runs properties
_MACHINERY = ("torch", "remat_gen", "logging", "warnings")  # the last two: words for people


@functools.cache
def is_library_file(file: str) -> bool:
    """Tell whether a file is an installed library's, Python's, or none (`<string>`)."""
    if file[:1] == "<" or _is_installed(file):
        return file[:1] != "<" or not file.startswith("<ipython")
    return is_pythons_file(file)


def is_pythons_file(file: str) -> bool:
    """Tell whether a file is of Python's own library."""
    return not _is_installed(file) and any(map(Path(file).is_relative_to, _PYTHONS))


def _is_installed(file: str) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def is_of_library(value: Any) -> bool:
    """Tell whether a function, a class or a module is a library's, or Python's."""
    if isinstance(value, (staticmethod, classmethod, types.MethodType)):
        value = value.__func__
    if isinstance(value, types.FunctionType):
        return is_library_file(value.__code__.co_filename)
    if isinstance(value, types.BuiltinFunctionType) and is_bound(value):
        return False  # as the `get` of a dict
    if isinstance(value, types.ModuleType):
        name = value.__name__
    else:
        name = (
            value if isinstance(value, (type, types.BuiltinFunctionType)) else type(value)
        ).__module__
    file = getattr(sys.modules.get(str(name)), "__file__", None)
    return file is None or is_library_file(file)


def user_files(model: nn.Module) -> list[types.ModuleType]:
    """Return the users' files that a model's classes stand in, and those that are used there."""
    kinds = dict.fromkeys(kind for module in model.modules() for kind in type(module).__mro__)
    waiting = [sys.modules[kind.__module__] for kind in kinds if not is_of_library(kind)]
    found: dict[str, types.ModuleType] = {}
    while waiting:
        file = waiting.pop()
        if file.__name__ in found or file.__name__.partition(".")[0] in _MACHINERY:
            continue
        found[file.__name__] = file
        used = filter(None, map(_file_of, list(vars(file).values())))
        waiting += (other for other in used if not is_of_library(other))
    return list(found.values())


def _file_of(value: Any) -> types.ModuleType | None:
    """Return the file that is imported, or that a class or a function is imported from."""
    if isinstance(value, types.ModuleType):
        return value
    defined = isinstance(value, (type, types.FunctionType))
    return sys.modules.get(str(value.__module__)) if defined else None


def is_bound(function: Any) -> bool:
    """Tell whether a function is bound to an object: not to its class or its file."""
    owner = getattr(function, "__self__", None)
    return owner is not None and not isinstance(owner, (type, types.ModuleType))


def reads_for_forward(space: dict[str, Any]) -> bool:
    """Tell whether code with these globals reads on forward's behalf: not torch's machinery."""
    return is_for_forward(str(space.get("__name__")))


@functools.cache
def is_for_forward(name: str) -> bool:
    """Tell whether a file, by the name that it is imported by, acts for forward."""
    if f"{name}.".startswith(_COMPUTE):
        return name != "torch.nn.modules.module"
    return name.partition(".")[0] not in _MACHINERY


def acts_for_forward(frame: types.FrameType | None) -> bool:
    """Tell whether what runs in a frame does so for forward; Python's own files act for others."""
    frame = _behind_python(frame)
    return frame is not None and reads_for_forward(frame.f_globals)


def acts_for_user(frame: types.FrameType | None) -> bool:
    """Tell whether what runs in a frame does so for a file of the user's."""
    frame = _behind_python(frame)
    return frame is not None and is_users(frame)


def is_users(frame: types.FrameType) -> bool:
    """Tell whether a frame runs code of a file of the user's."""
    return reads_for_forward(frame.f_globals) and not is_library_file(frame.f_code.co_filename)


def _behind_python(frame: types.FrameType | None) -> types.FrameType | None:
    """Return the frame that Python's own code runs for, behind what tells of its attributes."""
    while frame is not None and (
        _is_pythons(str(frame.f_globals.get("__name__"))) or frame.f_code.co_name == ASKING
    ):
        frame = frame.f_back
    return frame


@functools.cache
def _is_pythons(name: str) -> bool:
    top = name.partition(".")[0]
    return top in sys.stdlib_module_names and top not in _MACHINERY
