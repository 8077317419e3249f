"""The stages of a pipeline as the user's file builds them: what comes in, and what they return."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.graph import saved_tensors_hooks

from remat_gen.ask.budget import Resident
from remat_gen.ask.request import Request
from remat_gen.ask.resident import resident
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.observe.assumed import layout_of
from remat_gen.capture.process.generators import kept_generators
from remat_gen.capture.process.isolation import UserCode
from remat_gen.ir.errors import UsageError
from remat_gen.pipelined.device_memory import StageEnds
from remat_gen.plan.costing import load_for
from remat_gen.verification.step import forward_step, leaves_of


@dataclass(frozen=True, slots=True)
class StageFile:
    """A stage that was built once: its own bytes, and those that come in and go out.

    One that `returns_loss` returns one number, which needs nothing but itself for backward.
    """

    resident: Resident
    ends: StageEnds
    returns_loss: bool


def look_at_stages(requests: Sequence[Request]) -> list[StageFile]:
    """Build each stage, and run its forward on its example.

    Raises:
        UsageError: a stage cannot be built or run, or takes something else than is handed to it.
    """
    found: list[StageFile] = []
    handed: tuple[torch.Tensor, ...] = ()
    for stage, request in enumerate(requests):
        loaded = load_for(request)
        taken = _tensors(loaded.args)  # by position: others are each device's own
        if stage:
            _refuse_other_inputs(request.model_file, stage, handed, taken, str(request.inputs))
        handed = _outputs(loaded)
        ends = StageEnds(*(sum(t.nbytes for t in tensors) for tensors in (taken, handed)))
        found.append(StageFile(resident(loaded), ends, sum(t.numel() for t in handed) == 1))
    return found


def _outputs(loaded: Loaded) -> tuple[torch.Tensor, ...]:
    modes = [p.fake_mode for p in loaded.model.parameters() if isinstance(p, FakeTensor)]
    mode = modes[0] if modes else contextlib.nullcontext()
    doing = UserCode(loaded.path, f"{loaded.builder} on {loaded.inputs_name}")
    unsaved = saved_tensors_hooks(lambda t: t.new_empty(0), lambda t: t)  # no backward comes
    with loaded.importable(), kept_generators(), unsaved, mode, doing:
        return _tensors(forward_step(loaded.model, loaded.args, loaded.kwargs))


def _tensors(value: object) -> tuple[torch.Tensor, ...]:
    return tuple(leaf for leaf in leaves_of(value) if isinstance(leaf, torch.Tensor))


def _refuse_other_inputs(
    file: Path,
    stage: int,
    handed: Sequence[torch.Tensor],
    taken: Sequence[torch.Tensor],
    inputs: str,
) -> None:
    floats = [t for t in handed if t.is_floating_point()]
    if len(floats) > 1 and sum(t.ndim == 0 for t in floats) == 1:
        raise UsageError(
            f"{file}: stage {stage - 1} hands on one number beside other tensors, which a plan "
            "takes for the loss: let it hand on that number's unsqueeze(0)"
        )
    given, wanted = [*map(layout_of, taken)], [*map(layout_of, handed)]
    if given != wanted:
        made = _told(taken) if taken else "nothing by position, as it is handed on: return a tuple"
        mending = ""
        if given[: len(wanted)] == wanted and wanted:
            mending = "; what is not the stage's before is given by keyword, as (tuple, dict)"
        elif any("strides" in words for words in wanted):
            mending = "; let the stage return its contiguous()"
        raise UsageError(
            f"{file}: stage {stage - 1} returns {_told(handed)}, and {inputs} makes {made}{mending}"
        )
    for place, (own, before) in enumerate(zip(taken, handed, strict=True)):
        if own.requires_grad != before.requires_grad:
            makes = f"{file}: {inputs}: tensor {place} "
            raise UsageError(
                f"{makes}has a gradient that goes back to the stage before: make it with "
                "requires_grad=True"
                if before.requires_grad
                else f"{makes}has none in the stage before: make it without requires_grad"
            )


def _told(tensors: Sequence[torch.Tensor]) -> str:
    return ", ".join(map(layout_of, tensors)) or "no tensor"
