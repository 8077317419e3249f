"""What code has names for: globals that a function loads, members of the user's classes."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any

from torch import nn

from remat_gen.capture.process.libraries import is_of_library

_PASSED = (types.ModuleType, nn.Module, property, functools.cached_property)
_FRAMES = frozenset({"locals", "vars", "eval", "exec", "_getframe", "currentframe", "dir"})
_OF_CLASSES = frozenset({"type", "__class__", "cls", "super"})


def loaded_names(code: types.CodeType) -> Iterator[str]:
    """Yield the global names that a function's code loads, or has as texts for `globals()`."""
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL" and str(step.argval)[:2] != "__":  # the module's own name
            yield str(step.argval)
    if "globals" in code.co_names:
        yield from (constant for constant in code.co_consts if isinstance(constant, str))


def unread_parameters(function: Any) -> frozenset[str]:
    """Return the parameters that a function's own code never loads: whatever is given for them."""
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__") or not _FRAMES.isdisjoint(code.co_names):
        return frozenset()
    loads = (step.argval for step in dis.get_instructions(code) if "LOAD" in step.opname)
    loaded = {name for given in loads for name in (given if type(given) is tuple else (given,))}
    stars = sum(bool(code.co_flags & star) for star in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS))
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars]
    return frozenset(parameters) - loaded - {*code.co_cellvars}


def asks_classes(code: types.CodeType) -> bool:
    """Tell whether a function's code gets at the class of an object."""
    return not _OF_CLASSES.isdisjoint((*code.co_names, *code.co_varnames, *code.co_freevars))


def member_of(kind: type, name: str) -> Any:
    """Return what a class holds by a name, as it is held there."""
    return next((vars(one)[name] for one in kind.__mro__ if name in vars(one)), None)


def members_named(kind: type, names: set[str]) -> Iterator[tuple[type, str, Any, bool]]:
    """Yield what classes of the user's hold by these names, and whether a subclass hides it."""
    before: set[str] = set()
    for one in kind.__mro__:
        for name in () if is_of_library(one) else sorted(names & vars(one).keys()):
            value = vars(one)[name]
            value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            if name[:2] != "__" and not isinstance(value, _PASSED):
                yield one, name, value, name in before
        before |= vars(one).keys()
