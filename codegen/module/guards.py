"""What a generated module compares at entry with what it was planned for.

The functions below run twice: here, to write down what is expected, and in the generated module,
which gets their own source.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from remat_gen.capture.load.arguments import Call
from remat_gen.capture.load.records import fields_of, is_record
from remat_gen.capture.observe.assumed import (
    NOT_SET,
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
from remat_gen.capture.observe.read_code import unread_parameters
from remat_gen.capture.observe.repeats import Reads
from remat_gen.capture.trace.trace import Traced
from remat_gen.codegen.expressions.expressions import quoted
from remat_gen.codegen.module.environment import source_of
from remat_gen.ir.errors import TraceError
from remat_gen.ir.size import Length


def describe_argument(value: object) -> str:
    """Describe an argument as it is compared: `float32[8, 128] on cpu, requires grad`."""
    kind = type(value).__name__
    if isinstance(value, Mapping):  # in order: forward may ask for its values
        items = ", ".join(f"{key!r}: {describe_argument(item)}" for key, item in value.items())
        return f"{{{items}}}" if kind == "dict" else f"{kind} {{{items}}}"
    if isinstance(value, list | tuple):
        items = ", ".join(map(describe_argument, value))
        return f"[{items}]" if kind == "list" else f"{kind * (kind != 'tuple')}({items})"
    said = layout_of(value) if isinstance(value, Tensor) else repr(value)
    return said + ", requires grad" * (isinstance(value, Tensor) and value.requires_grad)


def in_order(value: Any) -> Any:
    """Let sets be described by their members in order: Python's is another in each process."""
    if isinstance(value, dict):
        return {key: in_order(item) for key, item in value.items()}
    if isinstance(value, list):
        return [in_order(item) for item in value]
    if isinstance(value, tuple):
        items = map(in_order, value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, (set, frozenset)):
        return {type(value): sorted(describe_argument(in_order(item)) for item in value)}
    if hasattr(type(value), "__members__"):  # an Enum
        ordered = in_order(value.value)
        return value if ordered is value.value else {str(value): ordered}
    return value


def in_any_container(value: Any, *keys: Any) -> Any:
    """Let what forward reads alike be described alike: dicts in any order, tuples and lists.

    With `keys` that is what stands at these.
    """
    if isinstance(value, Mapping):
        there = sorted((key for key in value if not keys or key in keys), key=repr)
        return {key: in_any_container(value[key]) for key in there}
    return [*map(in_any_container, value)] if type(value) in (list, tuple) else value


def by_fields(value: Any, *names: str) -> Any:
    """Let objects be described by their fields, or by those that forward reads.

    Of a class that the file has, one that was taken from elsewhere is told by its module, unless
    the model may be from there as well.
    """
    if isinstance(value, Mapping):
        return {key: by_fields(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = map(by_fields, value)
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    kind = type(value)
    declared = getattr(kind, "__dataclass_fields__", {})
    fields = names or tuple({**declared, **getattr(value, "__dict__", {})})
    is_enum = hasattr(kind, "__members__")
    if is_enum or isinstance(value, Tensor | int | float | str) or not fields:
        return value
    own = "plan_units" in globals() or globals().get(kind.__name__, kind) is kind
    described_so = type(f"{kind.__module__}." * (not own) + kind.__name__, (dict,), {})
    return described_so({name: by_fields(getattr(value, name, NOT_SET)) for name in fields})


def sources(
    *,
    held: bool,
    fixed: bool = False,
    sets: bool = True,
    containers: bool = True,
    records: bool = True,
) -> str:
    """Return the source of the functions that the generated module needs too.

    `held` where not all that forward reads is plain, `fixed` where numbers of inputs are compared,
    `sets` where arguments are or hold some, `containers` where these may be of any kind, `records`
    where they are objects with fields.
    """
    return source_of(
        layout_of,
        describe_argument,
        *((in_order,) if sets else ()),
        *((in_any_container,) if containers else ()),
        *((by_fields,) if records else ()),
        *((is_plain, describe) if held else ()),
        *((digest_of,) if held or fixed else ()),
        describe_module,
        rows_of,
        fetch,
        described,
        Watch,
    )


def expected_arguments(traced: Traced, forward: Callable[..., Any]) -> str:
    """Write the dict that `check_planned` compares: each parameter, and what is expected of it.

    A length that varies stands as `batch <= 8` in it. Left out is what forward never reads.

    Raises:
        TraceError: an argument is of a kind that cannot be compared.
    """
    call, lengths = traced.call, traced.graph.lengths
    signature = inspect.signature(forward)
    unread = unread_parameters(forward) - {_owner(length.dims[0][0]) for length in lengths}
    args, kwargs = _told(call, lengths)
    bound = signature.bind(None, *args, **kwargs)
    bound.apply_defaults()
    keys = _keys_by_name(traced.reads, signature)
    rows = []
    for name, value in list(bound.arguments.items())[1:]:
        if name in unread:
            continue
        asked = name
        if _holds_records(value):
            asked, ordered = _by_fields(name, value, keys.get(name, ()), lengths)
            rows.append(f"{quoted(name)}: ({asked}, {quoted(ordered)})")
            continue
        if name in keys and isinstance(value, (Mapping, list, tuple)):
            asked, value = _in_any_container(name, value, keys[name], lengths)
        said, ordered = _describe(name, value), describe_argument(in_order(value))
        asked = asked if ordered == said else f"in_order({asked})"
        rows.append(f"{quoted(name)}: ({asked}, {quoted(ordered)})")
    return "{" + ", ".join(rows) + "}"


def _owner(path: str) -> str:
    """Return the parameter that an input's path begins with."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _keys_by_name(reads: Reads, signature: inspect.Signature) -> dict[str, tuple[Any, ...]]:
    """Return what forward asks its arguments for, of those whose containers may be others."""
    args, kwargs = reads.keys
    given = signature.bind_partial(None, *args, **kwargs).arguments
    variable = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return {n: keys for n, keys in given.items() if signature.parameters[n].kind not in variable}


def _in_any_container(
    name: str, value: Any, asked: Iterable[Any], lengths: Iterable[Length]
) -> tuple[str, Any]:
    """Write what is compared of an argument whose containers may be others, and return that.

    Of a dict it is what forward asks for, and where a length that varies is read.
    """
    read = tuple(length.dims[0][0] for length in lengths)
    keys = dict.fromkeys(asked)
    if isinstance(value, Mapping):
        keys |= dict.fromkeys(k for k in value if f"{name}[{k!r}]" in read)
    if not all(type(key) in (str, int) for key in keys):
        keys = {}
    words = (quoted(key) if isinstance(key, str) else str(key) for key in keys)
    return f"in_any_container({', '.join((name, *words))})", in_any_container(value, *keys)


def _holds_records(value: Any) -> bool:
    """Tell whether an argument is a record, or has one at any depth."""
    inside = value.values() if isinstance(value, Mapping) else value
    within = inside if isinstance(value, (Mapping, list, tuple)) else ()
    return is_record(value) or any(map(_holds_records, within))


def _by_fields(
    name: str, value: Any, asked: Iterable[Any], lengths: Iterable[Length]
) -> tuple[str, str]:
    """Write what is compared of an argument that is an object, or holds some, and what it is.

    Of an object it is the fields that forward asks for, and those of a length that varies.
    """
    names = dict.fromkeys(asked if is_record(value) else ())
    for field in names.keys() - fields_of(value).keys() if names else ():
        if isinstance(getattr(value, field, None), Tensor):  # whose numbers are the plan's
            raise TraceError(
                f"forward reads {name}.{field}, a tensor of its class: make it a field"
            )
    if names:
        read = {length.dims[0][0].removeprefix(f"{name}.") for length in lengths}
        names |= dict.fromkeys(field for field in fields_of(value) if field in read)
    compared = f"by_fields({', '.join((name, *map(quoted, names)))})"
    return compared, _describe(name, by_fields(value, *names))


class _Said:
    """Stands in for a tensor whose description is known."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def describe_varying(value: Tensor, dims: Mapping[int, Length]) -> str:
    """Describe a tensor of which some dimensions vary: `float32[batch <= 8, 128] on cpu`."""
    shape = ", ".join(varying_shape(value.shape, dims))
    return describe_argument(value).replace(str(list(value.shape)), f"[{shape}]", 1)


def varying_shape(shape: Iterable[int], dims: Mapping[int, Length]) -> list[str]:
    """Write the dimensions of a shape of which some vary: `["batch <= 8", "128"]`."""
    return [str(dims.get(i, size)) for i, size in enumerate(shape)]


def _told(call: Call, lengths: tuple[Length, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with words for tensors of which some dimensions vary."""
    dims = {leaf.path: dims_of(leaf.path, lengths) for leaf in call.leaves}
    said = [
        _Said(describe_varying(leaf.value, dims[leaf.path])) if dims[leaf.path] else leaf.value
        for leaf in call.leaves
    ]
    spec = pytree.tree_structure((call.args, call.kwargs))
    told: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_unflatten(said, spec)
    return told if lengths else (call.args, call.kwargs)


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
