"""What a compiled function would take on a device that is not here.

It reads what it is given and writes what it returns, once; what dies inside never is in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remat_gen.capture.profile.targets import Hardware
from remat_gen.capture.profile.timing import round_time_us
from remat_gen.compile.part_text import PartText
from remat_gen.ir.costs import Costs, PartCost
from remat_gen.ir.graph import Graph


def modelled_parts(
    graph: Graph, target: Hardware, costs: Costs, parts: Sequence[PartText]
) -> dict[str, PartCost]:
    """Return the cost of each part by hash, from the target's rates."""
    return {p.sha256: _modelled(graph, target, costs, p) for p in parts}


def _modelled(graph: Graph, target: Hardware, costs: Costs, part: PartText) -> PartCost:
    apart_us = sum(costs.operations[name].time_us for name in part.operations)
    written = _nbytes(graph, part.made)
    outside = [n for n in part.tensors if graph.storage_of(n).kind.outside]
    inside = [n for n in part.tensors if n not in outside]
    # of a table that rows are picked from, no more is read than is made of it
    moved = written + _nbytes(graph, inside) + min(written, _nbytes(graph, outside))
    time_us = target.rates.launch_us + moved / target.rates.bytes_per_us
    return PartCost(round_time_us(apart_us), round_time_us(time_us), 0)


def _nbytes(graph: Graph, tensors: Iterable[str]) -> int:
    return sum(graph.storage_of(name).nbytes for name in tensors)
