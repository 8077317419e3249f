"""Where forward leaves what it keeps: `gate.balance` on a module, `stats[loss]` in a dict there.

Of dicts and lists those are followed whose keys can stand in a path: `losses[0]`.
`losses[:]` is all that a list holds, which forward clears and fills again, or what forward puts
into a dict where it was not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from remat_gen.capture.values.written import is_literal

_TORCHS = frozenset(vars(nn.Module()))
_IN_CONTAINER = re.compile(r"[^:\[\]]+(\[[\w/-]+\])+")
_KEY = re.compile(r"(?!\d+$)[\w/-]+")  # or a number
_SMALL = 4096  # numbers of a tensor that a planned step keeps: more may be why memory is short


def is_small(value: Any) -> bool:
    """Tell whether a tensor that forward keeps may be a result of the step."""
    plain = type(value) is torch.Tensor and value.layout is torch.strided
    return plain and value.numel() <= _SMALL


def is_attribute(path: str) -> bool:
    """Tell whether a path is that of an attribute of a module."""
    return set(":[").isdisjoint(path)


def is_item(path: str) -> bool:
    """Tell whether a path is that of an item of a dict or list on a module."""
    return bool(_IN_CONTAINER.fullmatch(path))


def values_at(model: nn.Module, paths: Iterable[str]) -> dict[str, Any]:
    """Return what stands at paths; None where there is nothing."""
    return {path: _found(model, path) for path in paths}


def _found(model: nn.Module, path: str) -> Any:
    owner, name, keys = split(path)
    try:
        held = getattr(model.get_submodule(owner), name)
        for key in filter(":".__ne__, keys):
            held = held[_key(key)]
    except (AttributeError, LookupError, TypeError):  # or an object that is no module has it
        return None
    return held


def _key(word: str) -> int | str:
    return int(word) if word.isdigit() else word


def put_at(model: nn.Module, values: Mapping[str, Any]) -> None:
    """Let values stand at paths."""
    for path, value in values.items():
        owner, name, keys = split(path)
        held: Any = vars(model.get_submodule(owner))  # past what its class does
        keys = [name, *keys]
        while len(keys) > 1:
            held = held[_key(keys.pop(0))]
        if keys == [":"] and isinstance(held, dict):
            held.update(value)
        else:
            held[slice(None) if keys == [":"] else _key(keys[0])] = value


def split(path: str) -> tuple[str, str, list[str]]:
    """Return the path of a module, the name of its attribute, and keys in that."""
    place, *keys = path.replace("]", "").split("[")
    owner, _, name = place.rpartition(".")
    return owner, name, keys


def leaves_in(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield what nested dicts and lists hold, by path; the value itself where it is none."""
    if type(value) not in (dict, list):
        yield path, value
        return
    for key, item in value.items() if type(value) is dict else enumerate(value):
        yield from leaves_in(item, f"{path}[{key}]")


def held_on(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield what modules hold beside their state, also in dicts and lists, by path."""
    for name, module in model.named_modules():
        own = {key: value for key, value in vars(module).items() if key not in _TORCHS}
        for attribute, value in own.items():
            path = f"{name}.{attribute}".lstrip(".")
            yield from leaves_in(value, path) if is_container(value) else [(path, value)]


def is_container(value: Any, depth: int = 4) -> bool:
    """Tell whether a value is a dict or list of such, of small tensors and of plain values."""
    if type(value) not in (dict, list) or not depth:  # it may hold itself
        return False
    keys = value if type(value) is dict else ()
    items = value.values() if type(value) is dict else value
    return all(map(_is_key, keys)) and all(
        is_small(item) or is_literal(item) or is_container(item, depth - 1) for item in items
    )


def _is_key(key: Any) -> bool:
    return (type(key) is int and key >= 0) or bool(isinstance(key, str) and _KEY.fullmatch(key))


def copied_containers(value: Any) -> Any:
    """Return the same dicts, lists and tuples anew, with what they hold."""
    if type(value) is dict:
        return {key: copied_containers(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(copied_containers, value))
    return value


def containers_in(put: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dicts and lists among what a step puts at paths."""
    return {path: value for path, value in put.items() if isinstance(value, dict | list)}


def blank(value: Any) -> Any:
    """Return the same dicts and lists with None for all they hold."""
    if type(value) is dict:
        return {key: blank(item) for key, item in value.items()}
    return [blank(item) for item in value] if type(value) is list else None
