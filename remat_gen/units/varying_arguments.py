"""Which dimensions of units' arguments are as long as the batch: a step of a smaller one tells."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from remat_gen.capture.load.arguments import describe_call
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.load.shorter_call import shortened
from remat_gen.capture.process.copies import copied
from remat_gen.capture.trace.lengths import found_lengths, why_none_found
from remat_gen.capture.units.boundary import BoundaryRun, UnitCall
from remat_gen.capture.units.computed_precision import computing_in
from remat_gen.capture.units.unit_kinds import Examples
from remat_gen.capture.values.held import kept_as_it_is
from remat_gen.ir.errors import TraceError
from remat_gen.units.own_step import own_step, run_forward

Layouts: TypeAlias = dict[int, tuple[torch.Size, tuple[int, ...]]]
"""Shapes and strides of the tensors among a call's leaves; those of contiguous ones are none."""


def note_varying(loaded: Loaded, examples: Examples, dtype: str = "") -> None:
    """Note which dimensions of units' arguments vary with the batch, or why none is taken to.

    One of as many elements may be something else: a mask's, of a sequence that is as long.
    """
    call = describe_call(loaded.model, loaded.args, loaded.kwargs)
    lengths = found_lengths(call)
    if not lengths:
        examples.pinned = why_none_found(call)
        return
    (batch,) = lengths
    smaller = shortened(call, lengths)
    args, kwargs = pytree.tree_map_only(Tensor, copied, (smaller.args, smaller.kwargs))
    seen: dict[str, Layouts] = {}

    def note(call: UnitCall) -> None:
        seen.setdefault(call.path, _layouts(call.args, call.kwargs))

    try:
        with (
            own_step(loaded) as own,
            computing_in(own, examples.units, dtype) as model,
            kept_as_it_is(own),
        ):
            run = BoundaryRun(examples.units, lambda _: contextlib.nullcontext(), note)
            run_forward(examples, run, model, args, kwargs)
    except TraceError as error:
        examples.pinned = f"with a batch of {batch.maximum - 1} {error}"
        return
    _compare(examples, seen, batch.maximum)


def _compare(examples: Examples, seen: Mapping[str, Layouts], batch: int) -> None:
    """Let each call's example have its dimensions that vary, if all of these are the batch."""
    varies: dict[str, tuple[tuple[int, int], ...]] = {}
    for path, example in examples.by_path.items():
        whole, smaller = _layouts(example.args, example.kwargs), seen.get(path, {})
        if [(i, len(s)) for i, (s, _) in whole.items()] != [
            (i, len(s)) for i, (s, _) in smaller.items()
        ]:
            examples.pinned = f"{path} is called otherwise with a batch of {batch - 1}"
            return
        if any(strides != smaller[i][1] for i, (_, strides) in whole.items()):
            examples.pinned = (
                f"{path} is given a tensor whose strides are others with a batch of {batch - 1}, "
                "as of x.transpose(0, 1): give it one that is contiguous()"
            )
            return
        dims = {(i, dim): n for i, (shape, _) in whole.items() for dim, n in enumerate(shape)}
        less = {(i, dim): dims[i, dim] - smaller[i][0][dim] for i, dim in dims}
        varies[path] = tuple(at for at, by in less.items() if by)
        if any((dims[at], less[at]) != (batch, 1) for at in varies[path]):
            examples.pinned = f"{path} is given more than one row for each of the batch"
            return
    for path, at in varies.items():
        examples.by_path[path] = replace(examples.by_path[path], varies=at)


def _layouts(args: tuple[object, ...], kwargs: Mapping[str, object]) -> Layouts:
    """Return how tensors are laid out, by their places among the leaves."""
    leaves = enumerate(pytree.tree_leaves((args, kwargs)))
    return {
        i: (leaf.shape, () if leaf.is_contiguous() else leaf.stride())
        for i, leaf in leaves
        if isinstance(leaf, Tensor)
    }
