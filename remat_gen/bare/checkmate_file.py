"""Checkmate's graphs as bare graphs: the arguments of its `DFGraph`, as JSON has them.

{"v": [ids], "args": {id: [ids]}, "backward_nodes": [ids], "cost_cpu": {id: time}, "cost_ram":
{id: bytes}, "node_names"?: {id: name}, "cost_ram_parameters"?: bytes}

Ids are whole numbers in topological order; as keys of an object they are texts. What is left out is
what DFGraph takes for it: no inputs, costs of 1. Parameters are outside of a step's activations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remat_gen.ir import coding
from remat_gen.ir.errors import GraphError

_ONE_OF = {"v", "args"}


@dataclass(frozen=True, slots=True)
class _Graph:
    v: tuple[int, ...]
    args: Mapping[str, tuple[int, ...]]
    backward_nodes: tuple[int, ...] = ()
    cost_cpu: Mapping[str, float] | None = None
    cost_ram: Mapping[str, int] | None = None
    node_names: Mapping[str, str] | None = None
    cost_ram_parameters: int = 0


def is_checkmates(plain: Mapping[str, object]) -> bool:
    """Tell a DFGraph from a graph of ours by its keys."""
    return plain.keys() >= _ONE_OF and "nodes" not in plain


def nodes_of(plain: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes as our own file has them, in the order of their ids.

    Raises:
        GraphError: an id is unknown or stands twice, or a key is.
    """
    graph: _Graph = coding.read(_Graph, plain, "")
    ids = sorted(graph.v)
    twice = [i for i, count in Counter(ids).items() if count > 1]
    if twice or not ids:
        raise GraphError(f"v: {twice[0]} stands twice" if twice else "v: holds no node")
    keyed = (graph.args, graph.cost_cpu or {}, graph.cost_ram or {}, graph.node_names or {})
    for what, keys in zip(("args", "cost_cpu", "cost_ram", "node_names"), keyed, strict=True):
        _refuse_unknown(what, list(keys), list(map(str, ids)))
    _refuse_unknown("backward_nodes", list(graph.backward_nodes), ids)
    names = _names(ids, graph.node_names or {})
    return [_node(graph, i, names) for i in ids]


def _node(graph: _Graph, i: int, names: Mapping[int, str]) -> dict[str, Any]:
    inputs = graph.args.get(str(i), ())
    _refuse_unknown(f"args of {i}", list(inputs), list(names))
    return {
        "name": names[i],
        "time": 1.0 if graph.cost_cpu is None else _cost("cost_cpu", graph.cost_cpu, i),
        "bytes": 1 if graph.cost_ram is None else _cost("cost_ram", graph.cost_ram, i),
        "backward": i in graph.backward_nodes,
        "inputs": [names[j] for j in inputs],
    }


def _cost(what: str, costs: Mapping[str, Any], i: int) -> Any:
    if str(i) not in costs:
        raise GraphError(f"{what}: has no {i}, a node of v")
    return costs[str(i)]


def _names(ids: list[int], given: Mapping[str, str]) -> dict[int, str]:
    """Return a name for each id: its own where no other has it, else with the id behind it."""
    own = {i: given.get(str(i), str(i)) for i in ids}
    counts = Counter(own.values())
    return {i: name if counts[name] == 1 else f"{name} ({i})" for i, name in own.items()}


def _refuse_unknown(what: str, found: list[Any], known: list[Any]) -> None:
    unknown = [item for item in found if item not in set(known)]
    if unknown:
        raise GraphError(f"{what}: {unknown[0]} is no node of v")
