"""Where forward leaves what it keeps: `gate.balance` on a module, `stats[loss]` in a dict there.

Of dicts, lists, tuples and dataclasses those are followed whose keys can stand in a path:
`losses[0]`, `state[h]`. `losses[:]` is all that a list holds, which forward clears and fills again,
or what forward puts into a dict where it was not.
"""

from __future__ import annotations

import builtins
import copy
import dataclasses
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    return is_plain_tensor(value) and value.numel() <= _SMALL


def is_plain_tensor(value: Any) -> bool:
    """Tell whether a value is a tensor of torch's own class and layout."""
    return type(value) is torch.Tensor and value.layout is torch.strided


def is_attribute(path: str) -> bool:
    """Tell whether a path is that of an attribute of a module."""
    return set(":[{").isdisjoint(path)


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
            held = dict(items_of(held))[_key(key)]
    except (AttributeError, LookupError, TypeError):  # or an object that is no module has it
        return None
    return held


def _key(word: str) -> int | str:
    return int(word) if word.isdigit() else word


def put_at(model: nn.Module, values: Mapping[str, Any]) -> None:
    """Let values stand at paths."""
    for path, value in values.items():
        owner, name, keys = split(path)
        attributes = vars(model.get_submodule(owner))  # past what its class does
        _with(attributes, [name, *map(_key, keys)], value)


def _with(held: Any, keys: list[int | str], value: Any) -> Any:
    """Put a value into nested containers; return the outer one, or another that has it."""
    if not keys:
        return value
    key, *rest = keys
    if key == ":" and isinstance(held, dict):
        held.update(value)
    elif key == ":":
        held[:] = value
    else:
        items = dict(items_of(held))
        item = _with(items.get(key), rest, value)
        if not isinstance(held, dict | list):
            return made_of(held, {**items, key: item})
        held[key] = item  # type: ignore[index]
    return held


def split(path: str) -> tuple[str, str, list[str]]:
    """Return the path of a module, the name of its attribute, and keys in that."""
    place, *keys = path.replace("]", "").split("[")
    owner, _, name = place.rpartition(".")
    return owner, name, keys


def items_of(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield keys and items of a container; nothing of any other value."""
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from enumerate(value)
    elif dataclasses.is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))


def made_of(like: Any, items: Mapping[Any, Any]) -> Any:
    """Return a container as another one, of other items."""
    if isinstance(like, defaultdict):
        return type(like)(like.default_factory, items)
    if isinstance(like, dict):
        return type(like)(items)
    if dataclasses.is_dataclass(like):
        made = copy.copy(like)
        for name, item in items.items():
            object.__setattr__(made, name, item)  # it may be frozen
        return made
    return type(like)(*items.values()) if hasattr(like, "_fields") else type(like)(items.values())


def _is_followed(value: Any) -> bool:
    """Tell whether a value is of a kind that is followed inwards, and that code can make."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type | dict | nn.Module):
        return all(field.init for field in dataclasses.fields(value))
    if isinstance(value, defaultdict) and value.default_factory not in vars(builtins).values():
        return False
    return type(value) in (dict, list, tuple, OrderedDict, defaultdict) or (
        isinstance(value, tuple) and hasattr(value, "_fields")
    )


def leaves_in(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield what nested containers hold, by path; the value itself where it is none."""
    if not _is_followed(value) or is_literal(value):
        yield path, value
        return
    for key, item in items_of(value):
        yield from leaves_in(item, f"{path}[{key}]")


def held_on(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield what modules hold beside their state, also in dicts and lists, by path."""
    for name, module in model.named_modules():
        own = {key: value for key, value in vars(module).items() if key not in _TORCHS}
        for attribute, value in own.items():
            path = f"{name}.{attribute}".lstrip(".")
            yield from leaves_in(value, path) if is_container(value) else [(path, value)]


def is_container(value: Any, depth: int = 4) -> bool:
    """Tell whether a value holds nothing but such, small tensors and plain values."""
    if not _is_followed(value) or is_literal(value) or not depth:  # it may hold itself
        return False
    items = [*items_of(value)]
    return all(_is_key(key) for key, _ in items) and all(
        is_small(item) or is_literal(item) or is_container(item, depth - 1) for _, item in items
    )


def _is_key(key: Any) -> bool:
    return (type(key) is int and key >= 0) or bool(isinstance(key, str) and _KEY.fullmatch(key))


def copied_containers(value: Any) -> Any:
    """Return the same containers anew, with what they hold."""
    return _anew(value, lambda held: held)


def containers_in(put: Mapping[str, Any]) -> dict[str, Any]:
    """Return the containers among what a step puts at paths."""
    return {p: v for p, v in put.items() if _is_followed(v) and not is_literal(v)}


def blank(value: Any) -> Any:
    """Return the same containers with `...` for all they hold."""
    return _anew(value, lambda _: ...)


def _anew(value: Any, leaf: Callable[[Any], Any]) -> Any:
    if not _is_followed(value) or is_literal(value):
        return leaf(value)
    return made_of(value, {key: _anew(item, leaf) for key, item in items_of(value)})


def is_of_dicts_and_lists(value: Any) -> bool:
    """Tell whether the containers in a value are dicts and lists, and of no other kind."""
    inside = all(is_of_dicts_and_lists(item) for _, item in items_of(value))
    return inside and (value is ... or type(value) in (dict, list))
