"""Runs of a forward for real, compared to the bit: whether the first one does as later ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import _pytree as pytree

from remat_gen.capture.device.kinds import KINDS
from remat_gen.capture.load.arguments import Call
from remat_gen.capture.observe.assumed import layout_of
from remat_gen.capture.observe.gradient_graph import gradient_graph
from remat_gen.capture.process.copies import copied
from remat_gen.capture.process.generators import kept_generators
from remat_gen.capture.process.operands import is_bitwise_equal
from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.values.recorded import nothing


@contextlib.contextmanager
def values_kept(model: nn.Module) -> Iterator[None]:
    """Have the values that parameters and buffers have now at the end."""
    tensors = [t for t in (*model.parameters(), *model.buffers()) if t.layout is torch.strided]
    copies = [t.detach().clone() for t in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, copy in zip(tensors, copies, strict=True):
                tensor.copy_(copy)


@dataclass(frozen=True, slots=True)
class Run:
    """What a run leaves behind: results, state, random streams, and the graph of gradients."""

    leaves: list[Any]
    parameters: list[Tensor]
    buffers: dict[str, Tensor]
    streams: list[Tensor]
    gradients: list[object]

    @classmethod
    def of(cls, model: nn.Module, call: Call) -> Run:
        """Run a forward on copies of its arguments; numbers are then as they were before."""
        args, kwargs = pytree.tree_map_only(Tensor, copied, (call.args, call.kwargs))
        given = pytree.tree_leaves((args, kwargs))
        names = {id(p): name for name, p in model.named_parameters()}
        names |= {id(x): str(i) for i, x in enumerate(given) if isinstance(x, Tensor)}
        with kept_generators(), quiet(), values_kept(model):
            torch.manual_seed(0)
            with saved_tensors_hooks(nothing, nothing):
                leaves = pytree.tree_leaves(model(*args, **kwargs))
            gradients = gradient_graph(leaves, names)
            leaves = pytree.tree_map_only(Tensor, Tensor.detach, leaves)
            parameters = [p.detach().clone() for p in model.parameters()]
            buffers = {name: b.detach().clone() for name, b in model.named_buffers()}
            streams = [state.clone() for kind in KINDS for _, state in kind.rng_states()]
        return cls(leaves, parameters, buffers, streams, gradients)

    def does_as(self, other: Run) -> bool:
        """Tell whether another run did the same, to the bit."""
        pairs = zip(
            (*self.leaves, *self.parameters, *self.buffers.values(), *self.streams),
            (*other.leaves, *other.parameters, *other.buffers.values(), *other.streams),
            strict=False,
        )
        counts = [(len(r.leaves), [*r.buffers], len(r.streams)) for r in (self, other)]
        return (
            counts[0] == counts[1]
            and self.gradients == other.gradients
            and all(same_tensors(a, b) for a, b in pairs)
        )


def same_tensors(one: Any, other: Any) -> bool:
    """Tell whether two results are the same: tensors to the bit."""
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return type(one) is type(other) and repr(one) == repr(other)
    if layout_of(one) != layout_of(other):
        return False
    return one.layout is not torch.strided or is_bitwise_equal(one, other)
