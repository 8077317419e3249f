"""Which copies of a graph are matrices that torch copies for several rows alone.

A reshape for a product, or for a sum of rows, is a copy where the batch's dimension is put together
with another one, and a view for a batch of 1; a trace has the copy. By the strides of the view BLAS
sums otherwise, so that such a copy has to be laid out as the view is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from remat_gen.capture.fx.view_strides import view_strides
from remat_gen.ir.graph import Argument, Graph, Literal, Operation, Ref, View, refs_in
from remat_gen.ir.size import Layout, Size, evaluate

_RESHAPED = "aten._unsafe_view.default"
_TURNED = frozenset(("aten.t.default", "aten.transpose.int"))
_PRODUCTS = frozenset(
    f"aten.{name}" for name in "mm.default bmm.default addmm.default sum.dim_IntList".split()
)


def copies(operation: Operation) -> bool:
    """Tell whether an operation copies a tensor so that its elements lie one after another."""
    how = dict(operation.kwargs).get("memory_format")
    contiguous = isinstance(how, Literal) and how.text == "contiguous_format"
    return operation.target == "aten.clone.default" and contiguous


def copied_matrices(graph: Graph) -> Iterator[str]:
    """Yield the copies that products read, and nothing else, and that are views of one row."""
    fewest = {length.name: length.minimum for length in graph.lengths}
    if 1 not in fewest.values():
        return
    views, targets = _users(graph)
    for operation in graph.operations:
        copy, (copied, *_) = operation.outputs[0], operation.args or (None,)
        if not copies(operation) or copy is None or not isinstance(copied, Ref):
            continue
        seen, layout = views.get(copy, ()), graph.layouts.get(copied.name)
        shapes = {view.args[1] for view in seen if view.target == _RESHAPED}
        if layout and len(shapes) == 1 and _for_products(copy, seen, views, targets):
            (shape,) = shapes
            if isinstance(shape, tuple) and _is_view(layout, shape, fewest):
                yield copy


def _users(graph: Graph) -> tuple[dict[str, list[View]], dict[str, list[str]]]:
    """Return the views of each tensor, and the operators that read it; outputs are read, too."""
    views: dict[str, list[View]] = {}
    targets: dict[str, list[str]] = {str(o.tensor): ["output"] for o in graph.outputs}
    for view in graph.views:
        views.setdefault(view.base, []).append(view)
    for operation in graph.operations:
        for name in refs_in((operation.args, operation.kwargs)):
            targets.setdefault(name, []).append(operation.target)
    return views, targets


def _for_products(
    copy: str,
    seen: Iterable[View],
    views: Mapping[str, list[View]],
    targets: Mapping[str, list[str]],
) -> bool:
    """Tell whether a copy is only viewed as matrices, and these only multiplied."""
    turned = [*chain.from_iterable(views.get(view.tensor, ()) for view in seen)]
    tensors = [view.tensor for view in (*seen, *turned)]
    return (
        copy not in targets
        and {view.target for view in seen} == {_RESHAPED}
        and _TURNED.issuperset(view.target for view in turned)
        and not any(views.get(view.tensor) for view in turned)
        and _PRODUCTS.issuperset(chain.from_iterable(targets.get(t, ()) for t in tensors))
    )


def _is_view(layout: Layout, shape: tuple[Argument, ...], fewest: Mapping[str, int]) -> bool:
    """Tell whether a tensor of one row can be viewed in a shape."""
    old, steps, new = (
        [int(evaluate(size, fewest)) for size in sizes if isinstance(size, Size | int)]
        for sizes in (layout.shape, layout.stride, shape)
    )
    return old[:1] == [1] and view_strides(old, steps, new) is not None
