"""Graph files for `remat-gen solve`."""

from __future__ import annotations

from typing import Any


def node(name: str, *inputs: str, time: float = 1, nbytes: int = 1) -> dict[str, Any]:
    backward = name.startswith("b")
    return {
        "name": name,
        "time": time,
        "bytes": nbytes,
        "backward": backward,
        "inputs": list(inputs),
    }


def chain_nodes(length: int) -> list[dict[str, Any]]:
    """Return DESIGN's uniform chain: backward i needs forward i and backward i + 1."""
    nodes = [node(f"f{i}", *([f"f{i - 1}"] if i else [])) for i in range(length + 1)]
    for i in reversed(range(length)):
        nodes.append(node(f"b{i}", f"f{i}", f"b{i + 1}" if i + 1 < length else f"f{length}"))
    return nodes
