"""Names that forward's code may read of its modules: from the code itself, without running it.

What a config holds, or a list, is a constant to the trace. To compare all of it would refuse a run
for another learning rate or name; so only what stands as an attribute, or as a text for `getattr`,
in `forward` counts, and in what it may call: the modules' methods of the same names, properties of
what they hold, functions of the same files. What forward writes itself is none: a library notes in
its config, at the first step, what it makes of the labels.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from torch import nn

_FUNCTIONS = 5000  # looked at, at most; a library's forward reaches some hundred


def names_read(model: nn.Module) -> frozenset[str]:
    """Return the names that the forwards of a model's modules, and what they call, may read."""
    codes = [function.__code__ for function in _reached(model)]
    names = {name for code in codes for name in _names(code)}
    return frozenset(names.difference(*map(_written, codes)))


def globals_read(model: nn.Module, namespace: Mapping[str, object]) -> frozenset[str]:
    """Return the global names of a file that its own functions among them load."""
    own = (f.__code__ for f in _reached(model) if f.__globals__ is namespace)
    return frozenset(name for code in own for name in _loaded(code) if name in namespace)


def _reached(model: nn.Module) -> list[FunctionType]:
    """Return the functions that a step may call, not PyTorch's own."""
    kinds = dict.fromkeys(type(module) for module in model.modules())
    held = list(_kinds_held(model))
    waiting = [f for kind in kinds for f in _functions(inspect.getattr_static(kind, "forward"))]
    names: set[str] = set()
    done: dict[CodeType, FunctionType] = {}
    while waiting and len(done) < _FUNCTIONS:
        function = waiting.pop()
        if function.__code__ in done or is_of_torch(function):
            continue
        done[function.__code__] = function
        found = set(_names(function.__code__))
        for name in found - names:
            for kind in kinds:
                waiting += _functions(inspect.getattr_static(kind, name, None))
            for kind in held:
                of_name = inspect.getattr_static(kind, name, None)
                waiting += _functions(of_name) if isinstance(of_name, property) else ()
        waiting += [f for name in found for f in _functions(function.__globals__.get(name))]
        names |= found
    return list(done.values())


def _kinds_held(model: nn.Module) -> Iterator[type]:
    """Yield the classes of what the modules hold: a config's properties read more of it."""
    values = (value for module in model.modules() for value in vars(module).values())
    yield from dict.fromkeys(type(v) for v in values if hasattr(v, "__dict__"))


def _functions(value: Any) -> Iterator[FunctionType]:
    """Yield the functions behind a method, a property or a decorated function."""
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if not isinstance(value, FunctionType):
        return
    yield value
    cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
    yield from (inner for inner in cells if isinstance(inner, FunctionType))


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            yield constant


def _written(code: CodeType) -> Iterator[str]:
    """Yield the names of the attributes that a function sets."""
    return _with_operation(code, "STORE_ATTR")


def _loaded(code: CodeType) -> Iterator[str]:
    """Yield the global names that a function loads."""
    return _with_operation(code, "LOAD_GLOBAL")


def _with_operation(code: CodeType, operation: str) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname == operation:
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_operation(constant, operation)


def is_of_torch(made: FunctionType | type) -> bool:
    """Tell whether PyTorch's own: its modules keep what they read in attributes of their own."""
    return str(made.__module__).partition(".")[0] == "torch"
