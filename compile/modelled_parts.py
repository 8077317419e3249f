"""What a compiled function would take on a device that is not here.

It reads what it is given and writes what it returns, once; what dies inside never is in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remat_gen.capture.profile.targets import Hardware
from remat_gen.capture.profile.timing import round_time_us
from remat_gen.compile.fused_costs import Candidate
from remat_gen.ir.costs import Costs, PartCost
from remat_gen.ir.graph import Graph


def modelled_parts(
    graph: Graph, target: Hardware, costs: Costs, candidates: Sequence[Candidate]
) -> dict[str, PartCost]:
    """Return the cost of each candidate by key, from the target's rates."""
    return {c.key: _modelled(graph, target, costs, c) for c in candidates}


def _modelled(graph: Graph, target: Hardware, costs: Costs, candidate: Candidate) -> PartCost:
    apart_us = sum(costs.operations[name].time_us for name in candidate.operations)
    written = _nbytes(graph, candidate.results)
    outside = [n for n in candidate.tensors if graph.storage_of(n).kind.outside]
    inside = [n for n in candidate.tensors if n not in outside]
    # of a table that rows are picked from, no more is read than is made of it
    moved = written + _nbytes(graph, inside) + min(written, _nbytes(graph, outside))
    time_us = target.rates.launch_us + moved / target.rates.bytes_per_us
    return PartCost(round_time_us(apart_us), round_time_us(time_us), 0)


def _nbytes(graph: Graph, tensors: Iterable[str]) -> int:
    return sum(graph.storage_of(name).nbytes for name in tensors)
