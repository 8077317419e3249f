"""Which submodules are units: those that patterns name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from torch import nn

from remat_gen.ir.errors import UsageError

CONTAINERS = (nn.ModuleList, nn.ModuleDict)


def find_units(model: nn.Module, patterns: Sequence[str]) -> dict[str, nn.Module]:
    """Return the submodules that patterns name, by path; `*` is one part of a path: `h.*`.

    Raises:
        UsageError: a pattern names nothing, something that is never called, or a unit in another.
    """
    modules = {path: module for path, module in model.named_modules() if path}
    first = {id(module): path for path, module in modules.items()}
    also = [*model.named_modules(remove_duplicate=False)][1:]
    units: dict[str, nn.Module] = {}
    for pattern in patterns:
        named = {first[id(m)]: m for path, m in also if matches(pattern, path)}
        if not named:
            raise UsageError(f"--units {pattern}: names no submodule; {_known(modules)}")
        units |= named
    _refuse_nested(units)
    lists = [path for path, module in units.items() if is_list(module)]
    if lists:
        raise UsageError(f"--units: {lists[0]} is a list, which is never called; '{lists[0]}.*'?")
    return {path: modules[path] for path in modules if path in units}


def is_list(module: nn.Module) -> bool:
    """Tell whether a module only holds others, and has no forward of its own."""
    return isinstance(module, CONTAINERS) and type(module).forward is nn.Module.forward


def matches(pattern: str, path: str) -> bool:
    """Tell whether a pattern names a path."""
    parts = (r"[^.]+" if part == "*" else re.escape(part) for part in pattern.split("."))
    return re.fullmatch(r"\.".join(parts), path) is not None


def _known(modules: Iterable[str]) -> str:
    """Say what a pattern might have meant: the patterns of lists, else the first names."""
    lists = dict.fromkeys(re.sub(r"\.\d+$", ".*", p) for p in modules if re.search(r"\.\d+$", p))
    names = [*lists] or [path for path in modules if "." not in path]
    return f"the model has {', '.join(names[:6])}" + ", …" * (len(names) > 6)


def _refuse_nested(units: Iterable[str]) -> None:
    for path in units:
        outer = [other for other in units if path.startswith(f"{other}.")]
        if outer:
            raise UsageError(f"--units: {path} lies in {outer[0]}, which is a unit itself")
