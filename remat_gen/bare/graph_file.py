"""Read a bare graph from JSON, strictly: what is wrong, where, and what to do about it.

{"nodes": [{"name", "time", "bytes", "backward", "inputs": [names], "layer"?}], "outputs"?: [names]}

Nodes stand in topological order. Times are in any unit. Checkmate's graphs are told by their keys
(`checkmate_file.py`), rotor's chain profiles by theirs or by being a list (`rotor_file.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from remat_gen.bare.checkmate_file import is_checkmates, nodes_of
from remat_gen.bare.rotor_file import is_rotors, parse_chain, problem_of
from remat_gen.ir import coding
from remat_gen.ir.coding import errors_name
from remat_gen.ir.errors import GraphError
from remat_gen.solver.law.bare_graph import BareGraph, Node
from remat_gen.solver.law.problem import Problem

_MOST_BYTES = 2**61  # together: searches count in 64 bits
_MOST_TIME = 1e300
_KEYS = {"nodes", "outputs"}
_SHOWN = 8  # nodes of a cycle


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    time: float
    bytes: int
    backward: bool
    inputs: tuple[str, ...]
    layer: str = ""


def read_instance(path: Path) -> BareGraph | Problem:
    """Read a graph file or a chain profile.

    Raises:
        UsageError: there is no such file, or it holds neither.
    """
    with errors_name(path):
        text = path.read_text(encoding="utf-8-sig")
        if not is_rotors(text):
            return parse_graph(text)
        problem = problem_of(parse_chain(text))
        sizes = [
            *(v.nbytes for v in problem.values),
            *(o.workspace_bytes for o in problem.operations),
        ]
        _check_totals(sizes, [operation.time_us for operation in problem.operations])
        return problem


def parse_graph(text: str) -> BareGraph:
    """Read a graph.

    Raises:
        GraphError: it is none; the message names the node.
    """
    plain = coding.parse(text)
    if isinstance(plain, dict) and is_checkmates(plain):
        plain = {"nodes": nodes_of(plain)}
    if not isinstance(plain, dict) or "nodes" not in plain:
        raise GraphError('holds no graph: expected an object with a list of "nodes"')
    if unknown := sorted(plain.keys() - _KEYS):
        raise GraphError(f"has an unknown {unknown[0]!r}: a graph has nodes and outputs")
    entries = [_entry(i, item) for i, item in enumerate(_items(plain["nodes"]))]
    positions = _positions(entries)
    _check_order(entries, positions)
    nodes = tuple(_node(i, entry, positions) for i, entry in enumerate(entries))
    _check_totals([node.nbytes for node in nodes], [node.time for node in nodes])
    return BareGraph(nodes, _outputs(plain, positions))


def _items(plain: object) -> list[dict[str, Any]]:
    if not isinstance(plain, list) or not plain:
        found = "none" if plain == [] else "something else"
        raise GraphError(f'"nodes": expected a list of at least one node, found {found}')
    for i, item in enumerate(plain):
        if not isinstance(item, dict):
            raise GraphError(f"node {i}: expected an object, found {str(item)[:60]!r}")
    return plain


def _entry(i: int, item: dict[str, Any]) -> _Entry:
    name = item.get("name")
    where = f"node {i} ({name!r})" if isinstance(name, str) else f"node {i}"
    read = coding.read(_Entry, item, where)
    assert isinstance(read, _Entry)
    return read


def _positions(entries: Sequence[_Entry]) -> dict[str, int]:
    positions: dict[str, int] = {}
    for i, entry in enumerate(entries):
        if entry.name in positions:
            raise GraphError(
                f"node {i}: {entry.name!r} is the name of node {positions[entry.name]} already; "
                f"names must differ"
            )
        positions[entry.name] = i
    return positions


def _check_order(entries: Sequence[_Entry], positions: Mapping[str, int]) -> None:
    for i, entry in enumerate(entries):
        where = f"node {i} ({entry.name!r})"
        for name in entry.inputs:
            if name not in positions:
                raise GraphError(f"{where}: reads {name!r}, which is no node of this graph")
            if positions[name] >= i:
                _refuse_cycle(entries, positions)
                raise GraphError(
                    f"{where}: reads {name!r}, which stands below it at node {positions[name]}; "
                    f"sort the nodes so that inputs come first"
                )


def _refuse_cycle(entries: Sequence[_Entry], positions: Mapping[str, int]) -> None:
    known = {entry.name: [n for n in entry.inputs if n in positions] for entry in entries}
    try:
        TopologicalSorter(known).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]  # in the direction of the data; the first is the last too
        where = f"node {positions[cycle[0]]} ({cycle[0]!r})"
        shown = " → ".join(cycle)
        if len(cycle) > _SHOWN:
            shown = f"{' → '.join([*cycle[:3], '…', *cycle[-2:]])} ({len(cycle) - 1} nodes)"
        raise GraphError(f"{where}: is in a cycle, which cannot run: {shown}") from error


def _node(i: int, entry: _Entry, positions: Mapping[str, int]) -> Node:
    for key, value in (("time", entry.time), ("bytes", entry.bytes)):
        if value < 0:
            raise GraphError(f"node {i} ({entry.name!r}).{key}: must be at least 0, is {value}")
    inputs = tuple(dict.fromkeys(positions[name] for name in entry.inputs))
    return Node(entry.name, entry.time, entry.bytes, entry.backward, inputs, entry.layer)


def _check_totals(sizes: Sequence[int], times: Sequence[float]) -> None:
    if sum(sizes) > _MOST_BYTES:
        raise GraphError(f"the nodes make more than {_MOST_BYTES} bytes together; use larger units")
    if sum(times) > _MOST_TIME:
        raise GraphError(f"the nodes take more than {_MOST_TIME} together; use larger units")


def _outputs(plain: Mapping[str, object], positions: Mapping[str, int]) -> frozenset[int]:
    names = coding.read(tuple[str, ...], plain.get("outputs", []), "outputs")
    for name in names:
        if name not in positions:
            raise GraphError(f"outputs: {name!r} is no node of this graph")
    return frozenset(positions[name] for name in names)
