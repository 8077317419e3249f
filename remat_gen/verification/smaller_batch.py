"""A step of a smaller batch than the example's, for plans that allow it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from remat_gen.capture.load.arguments import Call, describe_call
from remat_gen.capture.load.shorter_call import at_lengths
from remat_gen.capture.process.copies import copied
from remat_gen.capture.trace.lengths import asked_lengths
from remat_gen.ir.plan import PlannedRung
from remat_gen.ir.size import Length


@dataclass(frozen=True, slots=True)
class SmallerStep:
    """The arguments of a step: the first rows of the example's. `name` says how many.

    `predicted_peak_bytes` where a schedule was planned for just such steps; it may take
    `free_bytes` where it is for steps that begin with so much free memory.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    predicted_peak_bytes: int | None = None
    free_bytes: int = 0


def smaller_step(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic: Iterable[str],
    planned: Iterable[range] = (),
    *,
    least: bool = False,
) -> SmallerStep:
    """Return a step whose `dynamic` dimensions (`ids:0`) have about half of their length.

    Odd lengths, which no kernel favours and no reshape assumes; none that is not `planned`. Or the
    `least` lengths that are: a dimension of one is broadcast.
    """
    call = describe_call(model, tuple(args), dict(kwargs))
    begins = {lengths.stop - 1: lengths.start for lengths in planned}
    lengths = tuple(
        replace(length, minimum=begins.get(length.maximum, length.minimum))
        for length in asked_lengths(call, dynamic)
    )
    taken = {n.name: min(n.maximum - 1, n.maximum // 2 | 1) for n in lengths}
    taken = {n.name: n.minimum if least else max(n.minimum, taken[n.name]) for n in lengths}
    return _step(call, lengths, taken)


def longest_step(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic: Iterable[str],
    planned: PlannedRung,
) -> SmallerStep:
    """Return the longest step that a rung admits."""
    call = describe_call(model, tuple(args), dict(kwargs))
    lengths = asked_lengths(call, dynamic)
    numbers = planned.rung.numbers(lengths)
    taken = dict(zip((length.name for length in lengths), numbers, strict=True))
    name, peak = f"rung {planned.rung}", planned.predicted.peak_bytes
    step = _step(call, lengths, taken)
    return SmallerStep(name, step.args, step.kwargs, peak, planned.free_bytes)


def _step(call: Call, lengths: tuple[Length, ...], taken: Mapping[str, int]) -> SmallerStep:
    cut = at_lengths(call, {length: taken[length.name] for length in lengths})
    args, kwargs = pytree.tree_map(_apart, (cut.args, cut.kwargs), (call.args, call.kwargs))
    name = ", ".join(f"{name} of {number}" for name, number in taken.items())
    return SmallerStep(name, args, kwargs)


def _apart(part: Any, whole: Any) -> Any:
    """Return a tensor of its own: of a whole one, as a loader fills it; of a slice, a slice."""
    if not isinstance(whole, torch.Tensor):
        return whole
    part = part.detach()
    if _is_permutation(whole):
        part = part.argsort().argsort().to(part.dtype)
    apart = part.clone() if whole.is_contiguous() else copied(part)
    return apart.requires_grad_(whole.requires_grad)


def _is_permutation(value: torch.Tensor) -> bool:
    """Tell whether a tensor numbers its own rows, as the order in which mixup takes a batch.

    The first rows of it would number rows that are not there.
    """
    whole = value.dtype in (torch.int32, torch.int64) and value.ndim == 1 and len(value) > 1
    rows = torch.arange(len(value), device=value.device) if whole else value
    return whole and bool(value.sort().values.equal(rows.to(value.dtype)))
