"""What functions with a cache return once and for all: constants, or no plan has the same."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from remat_gen.capture.load.arguments import Call
from remat_gen.capture.process.caches import Caches
from remat_gen.capture.process.operands import lack_values
from remat_gen.capture.refuse.places import place_of
from remat_gen.capture.values.followed import RANDOM
from remat_gen.capture.values.looks import INPUT
from remat_gen.capture.values.recorded import Looks, Recorded, run_recorded
from remat_gen.ir.errors import TraceError


def refuse_stale(model: nn.Module, call: Call, caches: Caches, looks: Looks | None) -> None:
    """Refuse tensors that a cache keeps although another step would make others.

    Eager makes them in its first step, a plan in each: Dynamo looks through caches.

    Raises:
        TraceError: one follows from random numbers, an input, a parameter or a changing buffer.
    """
    given = (*model.state_dict().values(), *(leaf.value for leaf in call.leaves))
    if not caches.were_filled or lack_values(given):
        return
    with caches.emptied():
        run = run_recorded(model, call, looks or Looks())
        for function, tensors in caches.held():
            if run is not None:
                _refuse_stale(function, tensors, run)


def _refuse_stale(function: Any, tensors: list[Tensor], run: Recorded) -> None:
    sources = frozenset().union(*map(run.followed.reads, tensors)) & {*run.outside, RANDOM}
    if sources:
        source = min(sources, key=lambda name: (name != RANDOM, name))
        told = source if source == RANDOM else _told(source)
        code = getattr(function, "__code__", None)  # none of a partial's
        place = place_of([(code.co_filename, code.co_firstlineno)] if code else [])
        name = getattr(function, "__qualname__", "a function with a cache")
        raise TraceError(
            place.told(
                f"{name} keeps what it returns, which follows from {told}: eager "
                "makes it in the first step alone, a plan would in each: make it in __init__() and "
                "register it as a buffer, or leave the cache out"
            )
        )


def _told(source: str) -> str:
    of_input = source.startswith(INPUT)
    return f"the argument {source.removeprefix(INPUT)}" if of_input else f"self.{source}"
