"""Gradients of a linear layer that follow each other: one call of a function of the file.

What the schedule frees between them is freed behind the call, wherever that stays below the peak.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from remat_gen.codegen.statements.lifetimes import moments
from remat_gen.ir.graph import Graph, Operation, Ref, View
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Free, Run, Schedule

_FUNCTIONS = {  # by the gradients, in the order in which they are computed
    ("input", "weight", "bias"): "linear_backward",
    ("weight", "bias"): "weight_backward",
    ("weight", "input"): "matmul_backward",
}


@dataclass(frozen=True, slots=True)
class Gradients:
    """Gradients of one linear layer: operations, up to the `last` moment.

    The function is handed tensors whose `rows` it takes together, and perhaps the `weight`.
    """

    function: str
    operations: tuple[int, ...]
    last: int
    rows: tuple[str, ...]
    weight: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Product:
    gives: str
    d_y: object  # what tells the layer's incoming gradient from others
    tensors: Mapping[str, str]


def linear_gradients(graph: Graph, problem: Problem, schedule: Schedule) -> dict[int, Gradients]:
    """Return by their first moment the gradients that one call computes.

    Layers alike are treated alike: where one must free in between, none of them is one call.
    """
    spare = _spare_bytes(problem, schedule)
    found: dict[int, Gradients] = {}
    refused = set()
    views = {view.tensor: view for view in graph.views}
    for steps in _runs(schedule):
        products = [_product(graph, views, graph.operations[p]) for _, p, _ in steps]
        for length in (3, 2):
            group = _group(steps[:length], products[:length])
            if group is None:
                continue
            if not _fits(problem, spare, steps[:length]):
                refused.add(_signature(problem, group))
            found[steps[0][0]] = group
            break
    uses = Counter(group.function for group in found.values())
    inside = {m for first, g in found.items() for m in range(first + 1, g.last + 1)}
    return {
        moment: group
        for moment, group in found.items()
        if uses[group.function] > 1
        and moment not in inside
        and _signature(problem, group) not in refused
    }


_Step = tuple[int, int, tuple[int, ...]]  # a moment, its operation, what is freed behind it


def _runs(schedule: Schedule) -> Iterator[Sequence[_Step]]:
    """Yield for each run of backward that run and up to two behind it, in its segment."""
    by_segment: dict[int, list[_Step]] = {}
    for moment, segment, step in moments(schedule):
        steps = by_segment.setdefault(segment, [])
        if isinstance(step, Run):
            steps.append((moment, step.operation, ()))
        elif isinstance(step, Free) and steps:
            steps[-1] = (*steps[-1][:2], (*steps[-1][2], step.value))
    for segment, steps in by_segment.items():
        if segment >= schedule.block_count:
            yield from (steps[i : i + 3] for i in range(len(steps)))


def _group(steps: Sequence[_Step], products: Sequence[_Product | None]) -> Gradients | None:
    known = [product for product in products if product]
    function = _FUNCTIONS.get(tuple(product.gives for product in known))
    if function is None or len(known) < len(steps) or len({p.d_y for p in known}) > 1:
        return None
    tensors = {name: tensor for product in known for name, tensor in product.tensors.items()}
    rows = tensors["d_y"], tensors["x"]
    weight = tuple(tensors[name] for name in ("weight",) if name in tensors)
    return Gradients(function, tuple(p for _, p, _ in steps), steps[-1][0], rows, weight)


def _product(graph: Graph, views: Mapping[str, View], operation: Operation) -> _Product | None:
    """Return which gradient of a linear layer an operation may be."""
    first, *rest = operation.args or (None,)
    if not isinstance(first, Ref) or not operation.single or operation.kwargs:
        return None
    if operation.target == "aten.sum.dim_IntList" and rest in ([(0,)], [(0,), False]):
        return _Product("bias", _matrix(graph, first.name), {})
    if operation.target != "aten.mm.default" or not isinstance(rest[0], Ref):
        return None
    view = views.get(first.name)
    if view and view.target == "aten.t.default":
        tensors = {"d_y": view.base, "x": rest[0].name}
        return _Product("weight", _matrix(graph, view.base), tensors)
    tensors = {"d_y": first.name, "weight": rest[0].name}
    return _Product("input", _matrix(graph, first.name), tensors)


def _matrix(graph: Graph, name: str) -> object:
    tensor = graph.tensors[name]
    return tensor.storage, tensor.shape, tensor.stride, tensor.offset


def _signature(problem: Problem, group: Gradients) -> tuple[str, ...]:
    return tuple(problem.operations[p].signature for p in group.operations)


def _fits(problem: Problem, spare: Mapping[int, int], steps: Sequence[_Step]) -> bool:
    """Tell whether what is freed in between can stay until behind the last operation."""
    late = 0
    for (_, _, freed), (_, p, _) in pairwise(steps):
        late += sum(problem.values[v].nbytes for v in freed)
        if late > spare[p]:
            return False
    return True


def _spare_bytes(problem: Problem, schedule: Schedule) -> dict[int, int]:
    """Return by operation how far below the peak its runs are, with `.grad` there and without."""
    spare: dict[int, int] = {}
    for keep in (False, True):
        figures = replay(problem, schedule, keep_gradients=keep)
        highest = max(moment.nbytes for moment in figures.timeline)
        for moment in figures.timeline:
            below = highest - moment.nbytes
            spare[moment.operation] = min(below, spare.get(moment.operation, below))
    return spare
