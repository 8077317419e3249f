"""Small calls of an operator, made from its schema: every required argument, some optional ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

_SHAPE = (4, 6)

# Arguments that the operator only takes in a special form, by operator and argument.
_SPECIAL: dict[str, dict[str, Any]] = {
    "addmm": {"mat1": (4, 5), "mat2": (5, 6)},
    "arange": {"start": 1, "end": 9, "step": 2},
    "baddbmm": {"self": (2, 3, 5), "batch1": (2, 3, 4), "batch2": (2, 4, 5)},
    "bmm": {"self": (2, 3, 4), "mat2": (2, 4, 5)},
    "convolution": {
        "input": (2, 3, 8),
        "weight": (4, 3, 3),
        "bias": (4,),
        "stride": [1],
        "padding": [1],
        "dilation": [1],
        "transposed": False,
        "output_padding": [0],
        "groups": 1,
    },
    "elu": {"alpha": 1.5, "scale": 1.25, "input_scale": 0.5},
    "mm": {"self": (4, 5), "mat2": (5, 6)},
    "native_batch_norm": {"weight": (6,), "bias": (6,), "running_mean": (6,), "running_var": (6,)},
    "native_group_norm": {
        "input": (2, 6, 4),
        "weight": (6,),
        "bias": (6,),
        "N": 2,
        "C": 6,
        "HxW": 4,
        "group": 2,
    },
    "native_layer_norm": {"normalized_shape": [6], "weight": (6,), "bias": (6,)},
    "native_dropout": {"p": 0.5, "train": True},
    "as_strided": {"size": [2, 3], "stride": [6, 1], "storage_offset": 1},
    "expand": {"self": (4, 1), "size": [4, 3]},
    "permute": {"dims": [1, 0]},
    "split.Tensor": {"split_size": 2},
    "split.sizes": {"split_size": [1, 3]},
    "clamp.default": {"min": 0.25},
    "clamp.Tensor": {"min": (4, 6)},
    "split_with_sizes": {"split_sizes": [1, 3]},
    "squeeze": {"self": (4, 1, 6)},
    "unfold": {"dimension": 1, "size": 2, "step": 2},
    "view": {"size": [6, 4], "dtype": torch.int32},
    "diagonal": {"dim1": 0, "dim2": 1},
    "transpose": {"dim0": 0, "dim1": 1},
    "flip": {"dims": [0, 1]},
    "roll": {"shifts": [1], "dims": [0]},
    "rand": {"size": [3, 2]},
    "randn": {"size": [3, 2]},
    "scatter": {"reduce": "add"},
    "topk": {"k": 2},
    "round": {"decimals": 1},
}
_INTEGERS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")
_REGISTERED = frozenset(torch._C._dispatch_get_all_op_names())
_INDICES = ("index", "indices")


def overloads_of(name: str) -> list[str]:
    """Return the overloads that work on tensors, or make one, and write into none."""
    packet = getattr(torch.ops.aten, name)
    return [o for o in packet.overloads() if _counts(getattr(packet, o))]


def _counts(overload: Any) -> bool:
    schema = overload._schema
    kinds = [str(a.type) for a in schema.arguments]
    if any("Generator" in kind for kind in kinds) or any(map(_names_a_dimension, schema.arguments)):
        return False
    if any(a.is_out for a in schema.arguments) or schema.is_mutable:
        return False
    returned = [str(r.type) for r in schema.returns]
    if not all(kind in ("Tensor", "List[Tensor]") for kind in returned):
        return False
    name = overload.name()  # some are TorchScript's alone, or have a kernel on CUDA only
    registered = name in _REGISTERED
    return registered and torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CPU")


def _names_a_dimension(argument: Any) -> bool:
    """Tell whether a dimension is given by its name; torch 2.11 calls that type `str`."""
    kind = str(argument.type)
    return "Dimname" in kind or ("str" in kind and argument.name.startswith(("dim", "names")))


def calls_of(name: str, overload: str) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Yield arguments as a trace has them: positional ones, then those that are keywords."""
    schema = getattr(getattr(torch.ops.aten, name), overload)._schema
    chosen = _SPECIAL.get(f"{name}.{overload}", {})
    required = [a for a in schema.arguments if not a.has_default_value() or a.name in chosen]
    yield _bound(name, overload, required)
    positional = [a for a in schema.arguments if not a.kwarg_only]
    if len(positional) > sum(not a.kwarg_only for a in required):
        keywords = [a for a in required if a.kwarg_only]
        yield _bound(name, overload, [*positional, *keywords])


def _bound(name: str, overload: str, arguments: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    args = [_value(name, overload, a, generator) for a in arguments if not a.kwarg_only]
    return args, {a.name: _value(name, overload, a, generator) for a in arguments if a.kwarg_only}


def _value(name: str, overload: str, argument: Any, generator: torch.Generator) -> Any:
    kind = _kind(argument)
    special = _SPECIAL.get(f"{name}.{overload}", _SPECIAL.get(name, {})).get(argument.name)
    if special is not None and not isinstance(special, tuple):
        return special
    if kind == "Tensor":
        return _tensor(name, argument.name, special or _SHAPE, generator)
    if kind == "List[Tensor]":
        return [torch.rand(_SHAPE, generator=generator) for _ in range(2)]
    return _plain(kind, argument)


def _kind(argument: Any) -> str:
    kind = str(argument.type)
    return kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Opt") else kind


def _tensor(name: str, argument: str, shape: tuple[int, ...], generator: torch.Generator) -> Any:
    if argument in _INDICES:
        rows = (3,) if name in ("index_add", "index_select") else shape
        return torch.randint(0, 3, rows, generator=generator)
    if argument in ("mask", "condition"):
        return torch.rand(shape, generator=generator) > 0.5
    if argument == "source":
        shape = (3, shape[1])
    if argument == "value":
        return torch.tensor(2.0)
    if name in _INTEGERS:
        return torch.randint(0, 100, shape, generator=generator)
    return torch.rand(shape, generator=generator) * 0.9 + 0.05


def _plain(kind: str, argument: Any) -> Any:
    plain = {
        "int": 0,
        "number": 2,
        "float": 0.5,
        "bool": True,
        "List[int]": [0],
        "ScalarType": torch.float64,
        "Device": torch.device("cpu"),
        "Layout": torch.strided,
        "str": "floor",
        "MemoryFormat": torch.contiguous_format,
    }
    if argument.name in ("size", "split_sizes"):
        return [4, 6]
    return 3 if argument.name == "alpha" else plain[kind]
