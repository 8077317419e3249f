"""Which kernels of a graph are called by functions of the generated file, and their defaults."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from remat_gen.capture.fx.metadata import plain_name
from remat_gen.codegen.expressions import spelling
from remat_gen.codegen.expressions.expressions import BATCH_NORM, constant
from remat_gen.codegen.expressions.kernel_functions import Kernel, parameter
from remat_gen.ir.graph import Argument, Graph, Operation, Ref, refs_in
from remat_gen.ir.size import lengths_in

_CALLED = {BATCH_NORM: "aten.native_batch_norm.default"}  # in place of a traced operator
_STATISTICS = ("running_mean", "running_var")  # a batch norm that runs again is given none
_FEWEST_TENSORS, _FEWEST_SETTINGS = 3, 2  # from which on a function is worth its lines
_SIZES = frozenset(("N", "C", "HxW", "bias_sizes", "normalized_shape"))  # of what else is given
_PUBLIC = frozenset(("aten.convolution.default",))  # written as functions of torch.nn.functional


def kernels_of(graph: Graph, taken: Collection[str]) -> dict[str, Kernel]:
    """Return the functions for kernels that a graph calls more than once, by operator."""
    by_target: dict[str, list[Operation]] = {}
    for operation in graph.operations:
        if operation.target.startswith("aten.") and operation.target not in _PUBLIC:
            by_target.setdefault(operation.target, []).append(operation)
    found: dict[str, Kernel] = {}
    for target, alike in by_target.items():
        names = {*taken, *(kernel.name for kernel in found.values())}
        if len(alike) > 1 and (kernel := _kernel(graph, target, alike, names)):
            found[target] = kernel
    return found


def _kernel(
    graph: Graph, target: str, alike: Sequence[Operation], taken: Collection[str]
) -> Kernel | None:
    called = _CALLED.get(target, target)
    schema = _schema(called)
    names = [argument.name for argument in schema]
    rows = [dict(zip(names, o.args, strict=False)) | dict(o.kwargs) for o in alike]
    if any(row.keys() != rows[0].keys() for row in rows):
        return None
    values = {name: [row[name] for row in rows] for name in rows[0]}
    defaults = {name: _default(found) for name, found in values.items()}
    settings = sum(default is not None for default in defaults.values())
    if settings < _FEWEST_SETTINGS or sum(map(_tensor, rows[0].values())) < _FEWEST_TENSORS:
        return None
    if target == BATCH_NORM:
        defaults |= dict.fromkeys(_STATISTICS, "None")
    same = {name for name, found in values.items() if len(set(map(repr, found))) == 1}
    fixed = {name for name in same.difference(_STATISTICS) if defaults[name] is not None}
    sizes = {n: _size(graph, n, rows) for n in _SIZES.intersection(values).difference(fixed)}
    follows = {name: text for name, text in sizes.items() if text}
    plain = plain_name(called.split(".")[1])
    name = plain if plain.endswith("_backward") else f"{plain}_forward"
    while name in taken:
        name += "_"
    return Kernel(
        name=name,
        function=spelling.function(called),
        arguments=defaults | follows,
        fixed=frozenset({*fixed, *follows}),
        sizes=frozenset(n for n, found in values.items() if not all(map(_tensor, found))),
        keywords=frozenset(a.name for a in schema if a.kwarg_only),
    )


def _default(values: Sequence[Argument]) -> str | None:
    """Return the text of the value that most calls have; None where each has its own."""
    if all(map(_tensor, values)) or any(True for value in values for _ in lengths_in(value)):
        return None
    if any(map(_tensor, values)):
        return "None"
    ((most, _),) = Counter(map(constant, values)).most_common(1)
    return most


def _size(graph: Graph, name: str, rows: Sequence[Mapping[str, Argument]]) -> str | None:
    """Return how an argument follows in all calls from another's shape: `x.shape[1]`."""
    for tensor in rows[0]:
        found = [_shapes(graph, row[tensor]) for row in rows]
        for text, size in found[0].items():
            if size and all(row[name] == of.get(text) for row, of in zip(rows, found, strict=True)):
                return f"{parameter(tensor)}.shape{text}"
    return None


def _shapes(graph: Graph, value: Argument) -> dict[str, Argument]:
    """Return what can be read off a tensor's shape: lengths, their product, some of them."""
    if not isinstance(value, Ref):
        return {}
    layout = graph.layouts.get(value.name)
    shape = layout.shape if layout else graph.tensors[value.name].shape
    found: dict[str, Argument] = {}
    for i, length in enumerate(shape):
        rest = shape[i:]
        found |= {f"[{i}]": length, f"[{i}:{i + 1}]": (length,), f"[{i}:]": rest}
        known = [length for length in rest if isinstance(length, int)]
        if len(known) == len(rest):
            found[f"[{i}:].numel()"] = math.prod(known)
    return found


def _tensor(value: Argument) -> bool:
    return isinstance(value, Ref) or any(True for _ in refs_in((value,)))


def _schema(target: str) -> Any:
    _, name, overload = target.split(".")
    return getattr(getattr(torch.ops.aten, name), overload)._schema.arguments
