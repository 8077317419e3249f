"""What a generated module compares at entry with what it was planned for.

The functions below run twice: here, to write down what is expected, and in the generated module,
which gets their own source.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from remat_gen.capture.arguments import Call
from remat_gen.codegen.environment import source_of
from remat_gen.codegen.expressions import quoted
from remat_gen.ir.errors import TraceError
from remat_gen.ir.size import Length

MODULE_INTERNALS = frozenset(vars(nn.Module())) - {"training"}  # what every module has
MODULE_CONTENTS = (
    "_parameters _buffers _modules _forward_pre_hooks _forward_hooks _backward_pre_hooks "
    "_backward_hooks"
).split()
TENSOR_LAYOUT = operator.attrgetter("shape", "dtype", "device", "requires_grad")


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


def structure_of(model: nn.Module, attributes: frozenset[str]) -> list[object]:
    """Return what the trace read from a model: its modules, their plain attributes, its tensors.

    Of the model itself only `attributes` count: trainers put more on it, hooks among them.
    """
    found: list[object] = []
    for name, module in model.named_modules():
        found.append((name, type(module).__name__, has_hook(module)) if name else name)
        for key, value in vars(module).items():
            if key in MODULE_INTERNALS or not (name or key in attributes):
                continue
            if isinstance(value, Tensor) and value.numel() <= 4096 and not value.is_meta:
                found.append((key, value.tolist(), value.dtype))  # traced as a constant
            elif key[0] != "_" and is_plain(value):
                found.append((key, repr(value)))
        for tensors in (module._parameters, module._buffers):
            for key, t in tensors.items():
                if t is not None:
                    layout = t.shape, t.stride(), t.dtype, t.device.type
                    found.append((key, layout, t.requires_grad))
    return found


class Seen:
    """The objects of which `structure_of` told: while none is another, it need not tell again.

    It takes a sixth of the time. Nothing here refers to the model itself, which may be let go of.
    """

    def __init__(self, model: nn.Module) -> None:
        first, *others = model.modules()
        self.modules = others
        self.dicts: list[dict[Any, Any]] = []
        for module in (first, *others):
            own = vars(module)
            self.dicts += [own, *(own[key] for key in MODULE_CONTENTS)]
        self.tensors = [*model.parameters(), *model.buffers()]
        self.objects, self.layouts = self.look()
        values = (value for module in model.modules() for value in vars(module).values())
        self.constants = any(isinstance(value, Tensor) for value in values)

    def look(self) -> tuple[list[object], list[object]]:
        """Return all objects in the dicts, and what may change of a tensor that stays the same."""
        values = itertools.chain.from_iterable(map(dict.values, self.dicts))
        objects = [*map(type, self.modules), *values]
        return objects, [*map(TENSOR_LAYOUT, self.tensors), *map(Tensor.stride, self.tensors)]

    def is_current(self) -> bool:
        """Tell whether all is as it was; never where a tensor is a plain attribute."""
        objects, layouts = self.look()
        same = len(objects) == len(self.objects) and all(map(operator.is_, objects, self.objects))
        return same and layouts == self.layouts and not self.constants


def has_hook(module: nn.Module) -> bool:
    """Tell whether a module has a hook that its call would run."""
    forward = module._forward_pre_hooks or module._forward_hooks
    return bool(forward or module._backward_pre_hooks or module._backward_hooks)


def has_foreign_hook(module: nn.Module) -> bool:
    """Tell whether a module has a hook that its call would run; the library's are planned."""
    hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
    foreign = any(hook.__module__ != "transformers.utils.output_capturing" for hook in hooks)
    return bool(foreign or module._backward_pre_hooks or module._backward_hooks)


def is_plain(value: object) -> bool:
    """Tell whether a value is a number, a text, or a tuple of them."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return isinstance(value, (bool, int, float, str))  # a union takes longer


def hash_of_structure(structure: list[object]) -> str:
    """Hash a structure, the same in every process."""
    return hashlib.sha256(repr(structure).encode()).hexdigest()[:12]


def attributes_of(model: nn.Module) -> frozenset[str]:
    """Return the attributes that a model has when it is planned."""
    return frozenset(key for key in vars(model) if key[0] != "_")


def sources(hooked: bool = False) -> str:
    """Return the source of the functions that the generated module needs too.

    `hooked` lets the hooks pass that a library's forward installs: eval() may do so at any time.
    """
    asks = has_foreign_hook if hooked else has_hook
    functions = (describe_argument, structure_of, asks, is_plain, hash_of_structure, Seen)
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
