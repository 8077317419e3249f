"""A call whose lengths that vary are less than the example's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch.utils import _pytree as pytree

from remat_gen.capture.load.arguments import Call
from remat_gen.ir.size import Length


def shortened(call: Call, lengths: Iterable[Length]) -> Call:
    """Return the call with one less of each length; a length of 1 stays."""
    return at_lengths(call, {n: max(n.maximum - 1, 1) for n in lengths})


def at_lengths(call: Call, numbers: Mapping[Length, int]) -> Call:
    """Return the call with the first so many of each length."""
    cut = {(path, dim): number for n, number in numbers.items() for path, dim in n.dims}
    leaves = list(call.leaves)
    for i, leaf in enumerate(leaves):
        value = leaf.value
        for dim in range(value.ndim) if isinstance(value, torch.Tensor) else ():
            value = value.narrow(dim, 0, cut.get((leaf.path, dim), value.shape[dim]))
        leaves[i] = replace(leaf, value=value)
    _, spec = pytree.tree_flatten((call.args, call.kwargs))
    args, kwargs = pytree.tree_unflatten([leaf.value for leaf in leaves], spec)
    return replace(call, args=args, kwargs=kwargs, leaves=tuple(leaves))
