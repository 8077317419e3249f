"""How a generated module compares a model with the tables of what it was planned for.

The functions and the class below run twice: here, to write the tables, and in the generated module,
which gets their own source. A row names what forward reads: `h.*.attn.heads` (`*` is each index),
`config.scale`, `w[kl]`, and of files `:SCALE` or, of another one, `layers:SCALE`; of the process
`torch:get_default_dtype()`.
"""

from __future__ import annotations

import hashlib
import operator
import re
import weakref
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from itertools import chain
from string import Formatter
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._dynamo.guards import TensorGuards

from remat_gen.capture.refuse.refusals import PLAIN

HOOKS = "_forward_pre_hooks _forward_hooks _backward_pre_hooks _backward_hooks".split()
NOT_SET = type("NotSet", (), {"__repr__": lambda _: "not set"})()


def layout_of(t: Tensor) -> str:
    """Describe a tensor but for its numbers: `float32[8, 128] on cpu`, strides where unusual."""
    strides = f", strides {list(t.stride())}" if t.layout is torch.strided else f", {t.layout}"
    if t.layout is torch.strided and t.is_contiguous():  # of one channel also in channels_last
        other = t.ndim in (4, 5) and t.stride(1) == 1
        strides *= other and t.stride()[1:] != torch.empty(t.shape, device="meta").stride()[1:]
    own = f", a DTensor {list(t.placements)}" if hasattr(t, "placements") else ""
    own += f", a {type(t).__name__}" * (type(t).__torch_function__ not in PLAIN)
    strides += own or ", conjugate" * t.is_conj()
    return f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}{strides} on {t.device.type}"


def is_plain(value: Any) -> bool:
    """Tell whether a value is its text, and never another while it stays the same object."""
    if type(value) is tuple:
        return all(map(is_plain, value))
    of_torch = torch.dtype, torch.device, torch.layout, torch.memory_format
    plain = bool, int, float, complex, str, bytes, slice, range, *of_torch
    return value is None or value is NOT_SET or type(value) in plain


def describe(value: Any) -> str:
    """Describe a value: what is plain as Python writes it, else its kind and what it holds."""
    value = value.fget if isinstance(value, property) else value
    kind = type(value).__name__
    if is_plain(value):
        text = repr(value)
    elif hasattr(type(value), "__members__"):  # an Enum
        text = f"<{kind}.{value.name}: {describe(value.value)}>"
    elif isinstance(value, nn.Parameter):  # what forward does is the same for all of its numbers
        text = f"Parameter {layout_of(value)}"
    elif isinstance(value, Tensor) or hasattr(type(value), "__array_interface__"):
        numbers: Any = value.tolist() if value.nbytes <= 1024 else digest_of(value)
        numbers = describe(value.tolist()) if value.dtype == object else numbers  # no addresses
        text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} {numbers}"
        text += " requires grad" * getattr(value, "requires_grad", False)
    elif isinstance(value, (str, bytes, bytearray)) or hasattr(type(value), "as_integer_ratio"):
        text = f"{kind} {value}"  # a Decimal, too
    elif isinstance(value, dict) or kind == "mappingproxy":
        items = [f"{describe(key)}: {describe(item)}" for key, item in value.items()]
        text = f"{kind} {{{', '.join(items)}}}"
    elif isinstance(value, (list, tuple, set, frozenset)) or kind in ("deque", "dict_values"):
        items = [*map(describe, value)]
        items = sorted(items) if isinstance(value, (set, frozenset)) else items
        text = f"{kind} [{', '.join(items)}]"
    elif callable(value) and not isinstance(value, nn.Module) and hasattr(value, "__qualname__"):
        name = value.__qualname__.rpartition(".<locals>.")[2]  # a builder may have another name
        text = f"{'class' if isinstance(value, type) else 'function'} {name}"
    elif kind == "memoryview" or type(value).__mro__[-2:][0].__module__ in ("_ctypes", "array"):
        text = f"{kind} {digest_of(bytes(value))}"
    elif type(value).__module__.partition(".")[0] in ("datetime", "operator", "pathlib", "re"):
        text = repr(value) + str(getattr(value, "pattern", ""))[100:]  # repr has 200 of it
    else:
        text = f"{kind} object"
    return text if len(text) <= 400 else f"{kind} {digest_of(text.encode())}"


def digest_of(value: Any) -> str:
    """Return a hash of bytes, or of the numbers of a tensor or an array."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
    data = value if isinstance(value, bytes) else value.tobytes()
    return f"sha256 {hashlib.sha256(data).hexdigest()[:12]}"


def describe_module(module: nn.Module, path: str, first: dict[int, str]) -> str:
    """Describe a module: `Linear(weight: float32[768, 256])`; `first` is where tensors stand."""
    kind, children, tensors = type(module), list(module._modules), []
    for name, t in sorted({**module._parameters, **module._buffers}.items(), reverse=True):
        if t is not None:
            there = first.setdefault(id(t), here := f"{path}.{name}".lstrip("."))
            layout = layout_of(t).removesuffix(" on cpu") if there == here else f"is {there}"
            buffer = name in module._buffers
            grad = " requires grad" * buffer if t.requires_grad else " frozen" * (not buffer)
            tensors.append(f"{name}: {'buffer ' * buffer}{layout}{grad}")
    words = kind.__name__ if path else "model"
    if isinstance(module, (nn.ModuleList, nn.ModuleDict, nn.Sequential)):
        counted = children == [*map(str, range(len(children)))]
        words += f"[{len(children) if counted else ', '.join(children)}]"
    words += f"({', '.join(tensors)})" if tensors else ""
    words += " not of torch.nn" * (path != "" and getattr(nn, kind.__name__, kind) is not kind)
    forward = getattr(module.forward, "__qualname__", "object").rpartition(".<locals>.")[2]
    if path and forward not in (f"{kind.__name__}.forward", "_forward_unimplemented"):
        words += f" with {forward}"
    for hook in chain.from_iterable(vars(module)[name].values() for name in HOOKS):
        if path and hook.__module__ != "transformers.utils.output_capturing":
            held = f"{type(hook).__name__} {getattr(hook, '__dict__', '')}"
            name = getattr(hook, "__qualname__", held)
            words += f" with hook {name.rpartition('.<locals>.')[2]}"
    return words


def rows_of(table: Mapping[str, Any], modules: Iterable[str]) -> dict[str, Any]:
    """Return the row of each path; `*` is any number, and a row of fewer of them counts more."""
    found: dict[str, Any] = {}
    rows = [(path, row) for paths, row in table.items() for path in paths.split(" | ")]
    for path, row in sorted(rows, key=lambda row: -row[0].count("*")):
        head, star, tail = path.rpartition("*")
        rest, dot, name = tail.partition(".")
        numbered = re.compile(re.escape(f"{head}*{rest}").replace(r"\*", r"\d+") + r"(?![^.])")
        owners = filter(None, map(numbered.match, modules)) if star else ()  # and what is inside
        found |= dict.fromkeys([at[0] + dot + name for at in owners] if star else [path], row)
    return found


class File:
    """The globals of a file as attributes."""

    def __init__(self, held: dict[str, Any]) -> None:
        self.__dict__ = held


def fetch(model: nn.Module, path: str, file: Any) -> Any:
    """Return what stands at a path; `file` has the globals of this one."""
    place, colon, name = path.rpartition(":")
    try:
        root = import_module(place) if place else file if colon else model
        found = Formatter().get_field(f"root.{name.removesuffix('()')}", (), {"root": root})[0]
        return found() if name.endswith("()") else found
    except (AttributeError, ImportError, LookupError, RuntimeError, TypeError, ValueError):
        return NOT_SET


def described(model: nn.Module, paths: Iterable[str], file: Any) -> Iterator[tuple[str, str]]:
    """Describe all modules, and what stands at paths; once more reached, by its first path."""
    modules = dict(model.named_modules(remove_duplicate=False))
    first: dict[int, str] = {}
    for path in [*modules, *sorted(set(paths) - modules.keys())]:
        value = modules[path] if path in modules else fetch(model, path, file)
        words = describe_module(value, path, first) if path in modules else describe(value)
        if path in modules or isinstance(value, Tensor) or words.endswith(" object"):
            there = first.setdefault(id(value), path)
            words = words if there == path else f"is {there or 'the model'}"
        yield path, words


class Watch:
    """What a model was found to hold: while nothing is another, it is not described again.

    The model holds this, so that nothing here refers to it or its `vars`: it is let go of at once.
    """

    def __init__(self, model: nn.Module, paths: Iterable[str], file: Any) -> None:
        self.known: dict[int, Any] = {}  # what blocks are given
        self.of = weakref.ref(model)
        self.model: Any = weakref.proxy(model)
        self.file, self.paths = file, list[tuple[str, bool]]()
        _, *self.modules = model.modules()
        held = "_modules", "_parameters", "_buffers"
        tables = [vars(m)[name] for m in model.modules() for name in (*held, *HOOKS)]
        hooks = chain.from_iterable(vars(m)[name].values() for m in self.modules for name in HOOKS)
        tables += [getattr(hook, "__dict__", {}) for hook in hooks]
        self.empty, self.filled = [t for t in tables if not t], [t for t in tables if t]
        tensors = (*model.parameters(), *model.buffers())
        self.tensors = [t for t in tensors if t.layout is torch.strided]
        sizes, strides = ([[*of(t)] for t in self.tensors] for of in (Tensor.size, Tensor.stride))
        guards: Any = TensorGuards  # by which torch.compile tells whether a layout is another
        self.layouts = guards(*self.tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
        owners = dict(model.named_modules(remove_duplicate=False)) | {"": self.model, ":": file}
        asked = {path: ["__class__", *held] for path in owners} | {":": ["__class__", "__dict__"]}
        for path in paths:
            owner, value = path.replace(":", ":."), fetch(model, path, file)
            while owner not in owners:
                owner = owner.rpartition(".")[0]
            there = value is fetch(model, path, file) is not NOT_SET  # and no other each time
            same = callable(value) or describe(value) == f"{type(value).__name__} object"
            plain = set("[(").isdisjoint(path) and ":" not in path[1:]
            if there and plain and (same or describe(value) == repr(value)):
                asked[owner].append(path.removeprefix(owner).removeprefix("."))
            else:
                self.paths.append((path, there and (same or isinstance(value, Tensor))))
        self.asked = [(operator.attrgetter(*names), owners[p]) for p, names in asked.items()]
        self.objects, self.words = self.look()

    def look(self) -> tuple[list[object], list[object]]:
        """Return the objects that are there now, and in words what may change within one."""
        asked = chain.from_iterable([get(owner) for get, owner in self.asked])
        held, names = map(dict.values, self.filled), chain.from_iterable(self.filled)
        found = [fetch(self.model, path, self.file) for path, _ in self.paths]
        kept = (value for value, (_, same) in zip(found, self.paths, strict=True) if same)
        forwards = map(operator.attrgetter("forward"), self.modules)
        said = [*names, *forwards, *map(describe, found)]
        return [*asked, *chain.from_iterable(held), *kept], said

    def is_current(self) -> bool:
        """Tell whether all is as it was."""
        try:
            objects, words = self.look()
        except AttributeError:  # one is gone
            return False
        same = len(objects) == len(self.objects) and all(map(operator.is_, objects, self.objects))
        same = same and words == self.words and not any(self.empty)
        return same and self.layouts.check(*self.tensors)

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a copy of the model have seen nothing."""
        return type(None), ()
