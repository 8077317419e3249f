"""Which of a step's outputs others are made of: part of their gradient comes from those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def read_on(values: Sequence[Any]) -> frozenset[int]:
    """Return the positions of the outputs whose gradients eager sums from others', too.

    Autograd's graph tells, also where forward wrote over a view of an output.
    """
    ends = {
        i: (value.grad_fn, value.output_nr)
        for i, value in enumerate(values)
        if isinstance(value, torch.Tensor) and value.grad_fn is not None
    }
    reached = set[tuple[Any, int]]()
    known: set[Any] = {node for node, _ in ends.values()}
    nodes = list(known)
    while nodes:
        edges = {edge for edge in nodes.pop().next_functions if edge[0]}
        reached |= edges
        new = {node for node, _ in edges} - known
        known |= new
        nodes += new
    return frozenset(i for i, end in ends.items() if end in reached)
