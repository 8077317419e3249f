"""What a generated module compares at entry with what it was planned for.

The functions below run twice: here, to write down what is expected, and in the generated module,
which gets their own source.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import operator
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from remat_gen.capture.arguments import Call
from remat_gen.capture.reads import globals_read, is_of_torch, names_read
from remat_gen.codegen.environment import source_of
from remat_gen.codegen.expressions import quoted
from remat_gen.codegen.held import (
    bound_in,
    describe_held,
    is_plain,
    is_value,
    lines_of,
    members_read,
    qualname_of,
    sources_of,
    written_in,
)
from remat_gen.codegen.seen import Look, Seen
from remat_gen.ir.errors import TraceError
from remat_gen.ir.size import Length

BY_NAME = operator.itemgetter(0)
MODULE_INTERNALS = frozenset(vars(nn.Module())) - {"training"}  # what every module has


def describe_argument(value: object) -> str:
    """Describe an argument as it is compared: `float32[8, 128] on cpu, requires grad`."""
    if isinstance(value, dict):
        items = sorted(f"{key!r}: {describe_argument(item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(describe_argument(item) for item in value)}]"
    if not isinstance(value, Tensor):
        return repr(value)
    dtype = str(value.dtype).removeprefix("torch.")
    strides = "" if value.is_contiguous() else f", strides {list(value.stride())}"
    grad = ", requires grad" if value.requires_grad else ""
    return f"{dtype}{list(value.shape)}{strides} on {value.device.type}{grad}"


def structure_of(
    model: nn.Module,
    attributes: frozenset[str],
    reads: frozenset[str],
    loads: frozenset[str],
    file: Mapping[str, object],
) -> list[tuple[object, ...]]:
    """Return what the trace read from a model: its modules, what they hold, its tensors.

    And of its `file` the globals that forward's code `loads`.

    Of the model itself only `attributes` count: trainers put more on it, hooks among them. What is
    no number or text counts where forward's code may read it: its names are in `reads`.
    """
    found: list[tuple[object, ...]] = []
    first: dict[int, str] = {}  # where a tensor that several modules share is seen first
    for name, module in model.named_modules():
        kind = type(module)
        kind_of = kind.__name__, str(kind.__module__).startswith("torch.")
        found.append((name, *kind_of, has_hook(module)) if name else (name,))
        for key, value in sorted(vars(module).items(), key=BY_NAME):
            path = f"{name}.{key}"
            if key in MODULE_INTERNALS or not (name or key in attributes or key in reads):
                continue
            if isinstance(value, Tensor) and value.numel() <= 4096 and not value.is_meta:
                found.append((path, value.tolist(), value.dtype))  # traced as a constant
            elif key[0] != "_" and is_plain(value):
                found.append((path, repr(value)))
            elif key in reads or qualname_of(value):
                found.append((path, describe_held(value, reads)))
        for tensors in (module._parameters, module._buffers):
            for key, t in sorted(tensors.items(), key=BY_NAME):
                if t is not None and t.layout is torch.strided:
                    path = f"{name}.{key}"
                    layout = t.shape, t.stride(), t.dtype, t.device.type
                    found.append((path, layout, t.requires_grad, first.setdefault(id(t), path)))
    found += ((name, describe_held(value)) for name, value in members_read(model, reads))
    found += (("." + name, describe_held(file.get(name))) for name in sorted(loads))
    return found


def has_hook(module: nn.Module) -> bool:
    """Tell whether a module has a hook that its call would run."""
    forward = module._forward_pre_hooks or module._forward_hooks
    return bool(forward or module._backward_pre_hooks or module._backward_hooks)


def has_foreign_hook(module: nn.Module) -> bool:
    """Tell whether a module has a hook that its call would run; the library's are planned."""
    hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
    foreign = any(hook.__module__ != "transformers.utils.output_capturing" for hook in hooks)
    return bool(foreign or module._backward_pre_hooks or module._backward_hooks)


def hash_of_structure(structure: list[tuple[object, ...]]) -> str:
    """Hash a structure, the same in every process."""
    return hashlib.sha256(repr(structure).encode()).hexdigest()[:12]


def attributes_of(model: nn.Module) -> frozenset[str]:
    """Return the attributes that a model has when it is planned."""
    return frozenset(key for key in vars(model) if key[0] != "_")


def globals_of(model: nn.Module, namespace: Mapping[str, object]) -> frozenset[str]:
    """Return the numbers, texts and functions that forward's code loads of its file's globals."""
    read = (name for name in globals_read(model, namespace) if name[:2] != "__")
    kinds = (types.FunctionType, functools.partial)
    return frozenset(n for n in read if is_value(namespace[n]) or isinstance(namespace[n], kinds))


def sources_read(
    model: nn.Module,
    reads: frozenset[str],
    loads: frozenset[str],
    file: Mapping[str, object],
    before: float,
) -> dict[str, str]:
    """Hash the source of what forward's code calls in other files; see `sources_of`."""
    members = (value for _, value in members_read(model, reads))
    return sources_of(itertools.chain(members, map(file.get, loads)), file, before)


def reads_of(model: nn.Module) -> frozenset[str]:
    """Return the names that forward's code may read of what the modules hold, and calls of it."""
    held: dict[int, object] = {}
    waiting: list[object] = [value for m in model.modules() for value in _held(m)]
    named = (pair for m in model.modules() for pair in vars(m).items())
    names = {key for key, value in named if key[0] == "_" or not is_plain(value)}
    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    names.update(*(vars(kind) for kind in kinds - {object} if not is_of_torch(kind)))
    while waiting:
        value = waiting.pop()
        if id(value) in held:
            continue
        held[id(value)] = value
        inside = getattr(value, "__dict__", {})
        names.update(inside, getattr(value, "__slots__", None) or ())
        waiting += [v for v in inside.values() if _may_hold(v)]
    return names_read(model) & names - _NOT_READ


_NOT_READ = frozenset({"forward", "dtype", "device", *vars(nn.Module()), *vars(nn.Module)})
"""Of tensors, mostly: a library's config has none, or another, where weights were loaded."""


def _held(module: nn.Module) -> list[object]:
    return [v for key, v in vars(module).items() if key not in MODULE_INTERNALS and _may_hold(v)]


def _may_hold(value: object) -> bool:
    return not (is_plain(value) or isinstance(value, Tensor | nn.Module | type))


def sources(hooked: bool = False, other_files: bool = False) -> str:
    """Return the source of the functions that the generated module needs too.

    `hooked` lets the hooks pass that a library's forward installs: eval() may do so at any time.
    `other_files` where forward's code stands in others, too.
    """
    asks = has_foreign_hook if hooked else has_hook
    functions = (
        describe_argument,
        structure_of,
        members_read,
        describe_held,
        bound_in,
        written_in,
        qualname_of,
        *((sources_read, sources_of, lines_of) if other_files else ()),
        is_plain,
        is_value,
        asks,
        hash_of_structure,
        Seen,
        Look,
    )
    return source_of(*functions).replace(
        f"def {has_foreign_hook.__name__}(", f"def {has_hook.__name__}("
    )


def expected_arguments(
    call: Call, signature: inspect.Signature, lengths: tuple[Length, ...] = ()
) -> str:
    """Write the dict that `check_planned` compares: each parameter, and what is expected of it.

    A length that varies stands as `batch <= 8` in it.

    Raises:
        TraceError: an argument is of a kind that cannot be compared.
    """
    rows = (
        f"{quoted(name)}: ({name}, {quoted(_describe(name, value))})"
        for name, value in _arguments(call, signature, lengths)
    )
    return "{" + ", ".join(rows) + "}"


@dataclass(frozen=True, slots=True)
class _Said:
    """Stands in for a tensor whose description is known."""

    text: str

    def __repr__(self) -> str:
        return self.text


def describe_varying(value: Tensor, dims: Mapping[int, Length]) -> str:
    """Describe a tensor of which some dimensions vary: `float32[batch <= 8, 128] on cpu`."""
    shape = ", ".join(varying_shape(value.shape, dims))
    return describe_argument(value).replace(str(list(value.shape)), f"[{shape}]", 1)


def varying_shape(shape: Iterable[int], dims: Mapping[int, Length]) -> list[str]:
    """Write the dimensions of a shape of which some vary: `["batch <= 8", "128"]`."""
    return [str(dims.get(i, size)) for i, size in enumerate(shape)]


def _arguments(
    call: Call, signature: inspect.Signature, lengths: tuple[Length, ...]
) -> Iterator[tuple[str, Any]]:
    dims = {leaf.path: dims_of(leaf.path, lengths) for leaf in call.leaves}
    said = [
        _Said(describe_varying(leaf.value, dims[leaf.path])) if dims[leaf.path] else leaf.value
        for leaf in call.leaves
    ]
    spec = pytree.tree_structure((call.args, call.kwargs))
    args, kwargs = pytree.tree_unflatten(said, spec) if lengths else (call.args, call.kwargs)
    bound = signature.bind(None, *args, **kwargs)
    bound.apply_defaults()
    yield from list(bound.arguments.items())[1:]


def dims_of(path: str, lengths: Iterable[Length]) -> dict[int, Length]:
    """Return which dimensions of an input vary."""
    return {dim: length for length in lengths for of, dim in length.dims if of == path}


def _describe(name: str, value: object) -> str:
    for leaf in _plain_leaves(value):
        if not isinstance(leaf, Tensor) and (" at 0x" in repr(leaf) or "\n" in repr(leaf)):
            kind = type(leaf).__name__
            raise TraceError(f"forward's {name} is a {kind}, which cannot be compared")
    return describe_argument(value)


def _plain_leaves(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _plain_leaves(item)
    else:
        yield value
