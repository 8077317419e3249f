"""How a generated module compares a model with the tables of what it was planned for.

The functions and the class below run twice: here, to write the tables, and in the generated module,
which gets their own source. A row names what forward reads: `h.*.attn.heads` (`*` is each index),
`config.powers`, `w['kl']`, and of files `SCALE` or, of another one, `layers:SCALE`.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import operator
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

TABLES = (
    "_modules _parameters _buffers _forward_pre_hooks _forward_hooks _backward_pre_hooks "
    "_backward_hooks"
).split()
PARTS = re.compile(r"\[.*?\](?=[.\[]|$)|[^.\[]+")  # of a row's path
LAYOUT = operator.attrgetter("shape", "dtype", "device", "requires_grad")
Link: TypeAlias = tuple[Any, str, Any]  # what holds something, its name there, itself
Found: TypeAlias = dict[str, tuple[str, tuple[Link, ...]]]  # by path: its row, and the way to it

NOT_SET = type("NotSet", (), {"__repr__": lambda _: "not set"})()


def layout_of(t: Tensor) -> str:
    """Describe a tensor but for its numbers: `float32[8, 128] on cpu`, strides where unusual."""
    usual = t.layout is not torch.strided or t.is_contiguous()
    strides = "" if usual else f", strides {list(t.stride())}"
    return f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}{strides} on {t.device.type}"


def describe(value: Any) -> str:
    """Describe a value: what is plain as Python writes it, else its kind and what it holds."""
    value = value.fget if isinstance(value, property) else value
    kind = type(value).__name__
    if isinstance(value, Tensor) or hasattr(type(value), "tobytes"):
        array = value.detach().cpu() if isinstance(value, Tensor) else value
        text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} {array.tolist()}"
    elif isinstance(value, dict):
        items = [f"{describe(key)}: {describe(item)}" for key, item in value.items()]
        text = f"{kind} {{{', '.join(items)}}}"
    elif isinstance(value, (list, tuple, set, frozenset)) or kind == "deque":
        items = [describe(item) for item in value]
        items = sorted(items) if isinstance(value, (set, frozenset)) else items
        text = f"{kind} [{', '.join(items)}]"
    elif is_plain(value) or hasattr(type(value), "__members__"):  # an Enum
        text = repr(value)
    elif callable(value) and not isinstance(value, nn.Module) and hasattr(value, "__qualname__"):
        text = f"{'class' if isinstance(value, type) else 'function'} {value.__qualname__}"
    else:
        text = f"{kind} object"
    if len(text) > 400:
        text = f"{kind} sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return text


def is_plain(value: Any) -> bool:
    """Tell whether a value is its text, and never another while it stays the same object."""
    if type(value) is tuple:
        return all(map(is_plain, value))
    plain = bool, int, float, complex, str, bytes, slice, range, torch.dtype, torch.device
    return value is None or value is NOT_SET or type(value) in plain


def describe_module(module: nn.Module, path: str, first: dict[int, str]) -> str:
    """Describe a module: `Linear(weight: float32[768, 256])`; `first` is where tensors stand."""
    kind, children, tensors = type(module), list(module._modules), []
    for name, t in sorted({**module._parameters, **module._buffers}.items(), reverse=True):
        if t is not None:
            here = f"{path}.{name}".lstrip(".")
            there = first.setdefault(id(t), here)
            layout = layout_of(t).removesuffix(" on cpu") if there == here else f"is {there}"
            frozen = " frozen" if isinstance(t, nn.Parameter) and not t.requires_grad else ""
            tensors.append(f"{name}: {layout}{frozen}")
    words = kind.__name__ if path else "model"
    if isinstance(module, (nn.ModuleList, nn.ModuleDict, nn.Sequential)):
        counted = children == [*map(str, range(len(children)))]
        words += f"[{len(children) if counted else ', '.join(children)}]"
    words += f"({', '.join(tensors)})" if tensors else ""
    forward = getattr(module.forward, "__qualname__", "object").rpartition(".<locals>.")[2]
    if path and forward not in (f"{kind.__name__}.forward", "_forward_unimplemented"):
        words += f" with {forward}"
    return words if module.training or not path else f"{words} in eval mode"


def fetch(owner: Any, name: str) -> Any:
    """Return an attribute, or the item of a name in brackets; `NOT_SET` where there is none."""
    try:
        return owner[ast.literal_eval(name[1:-1])] if name[0] == "[" else getattr(owner, name)
    except (AttributeError, LookupError, TypeError):
        return NOT_SET


def found_at(
    owner: Any, names: list[str], links: tuple[Link, ...] = (), path: str = ""
) -> Iterator[tuple[str, tuple[Link, ...]]]:
    """Yield where a row leads, `*` being each index: the path, and what is passed on the way."""
    children = [name for name in getattr(owner, "_modules", ()) if name.isdigit()]
    for name in children if names[0] == "*" else names[:1]:
        here, value = path + name if name[0] == "[" else f"{path}.{name}", fetch(owner, name)
        passed, rest = (*links, (owner, name, value)), names[1:]
        yield from found_at(value, rest, passed, here) if rest else [(here.lstrip("."), passed)]


def found_in(model: nn.Module, rows: Iterable[str], file: dict[str, Any]) -> Found:
    """Find what rows name, by path; a row of one index counts more than one of all."""
    found: Found = {}
    for row in sorted(rows, key=lambda row: -row.count("*")):
        place = re.fullmatch(r"([\w.]*):(.+)", row)
        root, names = model, PARTS.findall(place[2] if place else row)
        if place:
            root = sys.modules.get(place[1], file)
            names[:1] = names[:1] if place[1] else [f"[{names[0]!r}]"]
        for path, links in found_at(root, names) if row else [(row, ((None, row, model),))]:
            found[row if place else path] = row, links
    order = {name: i for i, (name, _) in enumerate(model.named_modules(remove_duplicate=False))}
    return {
        path: found[path] for path in sorted(found, key=lambda p: (order.get(p, len(order)), p))
    }


def described(found: Found) -> Iterator[tuple[str, str, str]]:
    """Describe what was found, with its row; what is found once more is named by its first path."""
    first: dict[int, str] = {}
    for path, (row, (*_, (_, _, value))) in found.items():
        is_module = isinstance(value, nn.Module)
        words = describe_module(value, path, first) if is_module else describe(value)
        if is_module or words == f"{type(value).__name__} object":
            there = first.setdefault(id(value), path)
            words = words if there == path else f"is {there}"
        yield path, row, words


class Watch:
    """What a model was found to hold: while nothing is another, it is not described again.

    The model holds this, so that nothing here refers to its `vars`: it is let go of at once.
    """

    def __init__(self, model: nn.Module, found: Found, parameters: Any) -> None:
        self.parameters, (_, *self.modules) = parameters, model.modules()
        tables = [vars(m)[name] for m in (model, *self.modules) for name in TABLES]
        self.empty, self.filled = [t for t in tables if not t], [t for t in tables if t]
        tensors = (*model.parameters(), *model.buffers())
        self.tensors = [t for t in tensors if t.layout is torch.strided]
        values = {id(links[-1][2]): links[-1][2] for _, links in found.values()}.values()
        self.contents = [v for v in values if not (is_plain(v) or callable(v))]
        self.held = [(vars(module), "training") for module in self.modules]
        self.fetched = [(kind, "forward") for kind in dict.fromkeys(map(type, self.modules))]
        self.of_model = []
        passed = {(id(link[0]), link[1]): link for _, links in found.values() for link in links}
        for owner, name, value in passed.values():
            inside = getattr(owner, "__dict__", None)
            if isinstance(value, nn.Module):
                continue  # it stands in a table
            if name[0] == "[" or not isinstance(inside, dict):
                self.fetched.append((owner, name))
            else:
                self.of_model += [name] if owner is model else []
                self.held += [] if owner is model else [(inside, name)]
                self.fetched += [] if name in inside else [(type(owner), name)]
        self.objects, self.words = self.look(model), self.describe()

    def look(self, model: nn.Module) -> list[object]:
        """Return the objects that are there now."""
        kinds, insides = map(type, self.modules), map(vars, self.modules)
        own, held = map(vars(model).get, self.of_model), itertools.starmap(dict.get, self.held)
        tables = itertools.chain.from_iterable(map(dict.values, self.filled))
        return [*kinds, *insides, *own, *held, *itertools.starmap(fetch, self.fetched), *tables]

    def describe(self) -> list[object]:
        """Describe what may change while it stays the same object."""
        names, sizes = itertools.chain.from_iterable(self.filled), map(len, map(vars, self.modules))
        layouts, strides = map(LAYOUT, self.tensors), map(Tensor.stride, self.tensors)
        return [*names, *sizes, *layouts, *strides, *map(describe, self.contents)]

    def is_current(self, model: nn.Module) -> bool:
        """Tell whether all is as it was."""
        objects = [] if any(self.empty) else self.look(model)
        same = len(objects) == len(self.objects) and all(map(operator.is_, objects, self.objects))
        return same and self.words == self.describe()

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a copy of the model have seen nothing."""
        return type(None), ()
