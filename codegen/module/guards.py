"""What a generated module compares at entry with what it was planned for.

The functions below run twice: here, to write down what is expected, and in the generated module,
which gets their own source.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from remat_gen.capture.load.arguments import Call
from remat_gen.capture.observe.assumed import (
    Watch,
    describe,
    describe_module,
    described,
    digest_of,
    fetch,
    is_plain,
    layout_of,
    rows_of,
)
from remat_gen.codegen.expressions.expressions import quoted
from remat_gen.codegen.module.environment import source_of
from remat_gen.ir.errors import TraceError
from remat_gen.ir.size import Length


def describe_argument(value: object) -> str:
    """Describe an argument as it is compared: `float32[8, 128] on cpu, requires grad`."""
    kind = type(value).__name__
    if isinstance(value, dict):  # in order: forward may ask for its values
        items = ", ".join(f"{key!r}: {describe_argument(item)}" for key, item in value.items())
        return f"{{{items}}}" if kind == "dict" else f"{kind} {{{items}}}"
    if isinstance(value, list | tuple):
        items = ", ".join(map(describe_argument, value))
        return f"[{items}]" if kind == "list" else f"{kind * (kind != 'tuple')}({items})"
    if not isinstance(value, Tensor):
        return repr(value)
    return f"{layout_of(value)}{', requires grad' if value.requires_grad else ''}"


def in_order(value: Any) -> Any:
    """Let sets be described by their members in order: Python's is another in each process."""
    if isinstance(value, dict):
        return {key: in_order(item) for key, item in value.items()}
    if isinstance(value, list):
        return [in_order(item) for item in value]
    if isinstance(value, tuple):
        return tuple(in_order(item) for item in value)
    if isinstance(value, (set, frozenset)):
        return {type(value): sorted(describe_argument(in_order(item)) for item in value)}
    if hasattr(type(value), "__members__"):  # an Enum
        ordered = in_order(value.value)
        return value if ordered is value.value else {str(value): ordered}
    return value


def sources(*, held: bool, fixed: bool = False, sets: bool = True) -> str:
    """Return the source of the functions that the generated module needs too.

    `held` where not all that forward reads is plain, `fixed` where numbers of inputs are compared,
    `sets` where arguments are or hold some.
    """
    return source_of(
        layout_of,
        describe_argument,
        *((in_order,) if sets else ()),
        *((is_plain, describe) if held else ()),
        *((digest_of,) if held or fixed else ()),
        describe_module,
        rows_of,
        fetch,
        described,
        Watch,
    )


def expected_arguments(
    call: Call, signature: inspect.Signature, lengths: tuple[Length, ...] = ()
) -> str:
    """Write the dict that `check_planned` compares: each parameter, and what is expected of it.

    A length that varies stands as `batch <= 8` in it.

    Raises:
        TraceError: an argument is of a kind that cannot be compared.
    """
    rows = (_row(name, value) for name, value in _arguments(call, signature, lengths))
    return "{" + ", ".join(rows) + "}"


def _row(name: str, value: object) -> str:
    said, ordered = _describe(name, value), describe_argument(in_order(value))
    if ordered == said:
        return f"{quoted(name)}: ({name}, {quoted(said)})"
    return f"{quoted(name)}: (in_order({name}), {quoted(ordered)})"


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
