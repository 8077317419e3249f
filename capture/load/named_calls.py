"""What builds a model or its inputs, as it is named: `build_model`, `GPT(layers=4)`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from remat_gen.ir.errors import UsageError

Build: TypeAlias = Callable[[], object]


@dataclass(frozen=True, slots=True)
class NamedCall:
    """A name in the user's file, and the literals that it is called with."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()

    def of(self, function: Callable[..., object]) -> Build:
        """Return the function as it is called: bare where no arguments were given."""
        if not self.args and not self.kwargs:
            return function
        return partial(function, *self.args, **dict(self.kwargs))


def named_call(text: str, option: str) -> NamedCall:
    """Read a name, or a call of it with literals.

    Raises:
        UsageError: it is neither.
    """
    try:
        node = ast.parse(text, mode="eval").body
        if isinstance(node, ast.Name):
            return NamedCall(node.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            args = tuple(ast.literal_eval(argument) for argument in node.args)
            given = {str(k.arg): ast.literal_eval(k.value) for k in node.keywords if k.arg}
            if len(given) == len(node.keywords):
                return NamedCall(node.func.id, args, tuple(given.items()))
    except (SyntaxError, ValueError):
        pass
    raise UsageError(
        f"{option} {text}: give a name of the file, or a call of it with numbers and texts, "
        "as in 'GPT(layers=4)'"
    )


def required(build: Build) -> list[str]:
    """Return the names of the arguments without which a callable cannot be called."""
    try:
        parameters = inspect.signature(build).parameters.values()
    except (TypeError, ValueError):  # written in C: calling it is the only way to know
        return []
    return [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
