"""Plan every stage of a pipeline within the memory of its device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from remat_gen.ask.budget import Budget, Resident
from remat_gen.ask.generate_options import GenerateOptions
from remat_gen.ask.request import DeviceMemory, Request, default_output
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.load.load import resolve_device
from remat_gen.capture.profile.targets import find_target
from remat_gen.ir.byte_text import size
from remat_gen.ir.errors import InfeasibleBudgetError, UsageError
from remat_gen.pipelined.device_memory import (
    StageNeed,
    held_by_pipeline,
    highest_need,
)
from remat_gen.pipelined.micro_batch_order import Pipeline
from remat_gen.pipelined.stage_files import StageFile, look_at_stages
from remat_gen.plan.pipeline import Generated, generate
from remat_gen.terminal.interrupt import Interruptible

BUILDER, INPUTS = "build_stage", "stage_inputs"
_ROUNDS = 3  # of planning a device's stages, where they need more together than each was told


@dataclass(frozen=True, slots=True)
class PlannedDevice:
    """A device's stages: `limit_bytes` for activations, `pipeline_bytes` of it PyTorch's own."""

    device: int
    stages: Mapping[int, Generated]
    in_flight: int
    limit_bytes: int
    pipeline_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedStages:
    """A pipeline, and the plans of its stages by the devices that have them.

    `has_loss` where the last stage returns the loss: what `loss_fn` needs otherwise is in no plan.
    """

    pipeline: Pipeline
    devices: tuple[PlannedDevice, ...]
    has_loss: bool

    @property
    def stages(self) -> list[Generated]:
        """Return the stages' plans, in the order of the model."""
        found = {stage: made for device in self.devices for stage, made in device.stages.items()}
        return [found[stage] for stage in range(self.pipeline.stages)]


def plan_stages(
    pipeline: Pipeline,
    options: GenerateOptions,
    model_file: Path,
    output: Path | None,
    progress: Interruptible,
) -> PlannedStages:
    """Plan and write each stage; the limit is that of one device, and holds all that it has.

    Raises:
        RematError: a stage cannot be planned, or the stages of a device need more than it has.
    """
    requests = [
        _request(pipeline, stage, options, model_file, output) for stage in range(pipeline.stages)
    ]
    files = look_at_stages(requests)
    devices = tuple(
        _plan_device(pipeline, device, requests, files, progress)
        for device in range(pipeline.devices)
    )
    return PlannedStages(pipeline, devices, files[-1].returns_loss)


def stage_output(output: Path | None, model_file: Path, stage: int) -> Path:
    """Return the file of a stage; `{stage}` in the name stands for its number.

    Raises:
        UsageError: the name has none.
    """
    if output is None:
        return default_output(model_file, f"_stage{stage}")
    if "{stage}" not in output.name:
        raise UsageError(
            f"-o {output}: each stage has a file: say where its number stands, as in "
            f"{output.stem}_{{stage}}{output.suffix}"
        )
    return output.with_name(output.name.replace("{stage}", str(stage)))


def _request(
    pipeline: Pipeline,
    stage: int,
    options: GenerateOptions,
    model_file: Path,
    output: Path | None,
) -> Request:
    if options.budget is None and options.device_memory is None:
        raise UsageError(
            "give what one device has: --budget 6GB for activations, or --device-memory"
        )
    called = f"({stage}, {pipeline.stages})"
    options = replace(
        options,
        model=f"{options.model or BUILDER}{called}",
        inputs=f"{options.inputs or INPUTS}{called}",
    )
    request = options.request(model_file, stage_output(output, model_file, stage))
    if isinstance(request.limit, Budget) and request.limit.nbytes is None:
        raise UsageError(
            f"--budget {request.limit.text}: a device of a pipeline has its memory whatever its "
            "stage needs: give a size, or --device-memory"
        )
    return request


def _plan_device(
    pipeline: Pipeline,
    device: int,
    requests: Sequence[Request],
    files: Sequence[StageFile],
    progress: Interruptible,
) -> PlannedDevice:
    own = pipeline.stages_of(device)
    ends = {stage: files[stage].ends for stage in own}
    resident = _resident(pipeline, {stage: files[stage].resident for stage in own})
    limit = _limit(requests[own[0]], resident)
    held = held_by_pipeline(pipeline, device, ends)
    if held >= limit:
        raise UsageError(
            f"device {device}: {size(limit)} for activations is less than what the pipeline itself "
            f"holds: {size(held)}; take fewer or smaller micro-batches"
        )
    flight, budget = pipeline.in_flight(device), limit - held
    asked = {stage: replace(requests[stage], in_flight=flight) for stage in own}
    for _ in range(_ROUNDS):
        made = {}
        for stage in own:
            progress.part(f"stage {stage}")
            made[stage] = _plan(asked[stage], pipeline, budget, limit - budget, progress)
        needs = {}
        for stage, one in made.items():
            predicted, waiting = one.plan.predicted, one.waiting_bytes
            most = max(predicted.peak_bytes, predicted.highest_bytes)
            needs[stage] = StageNeed(most - (flight - 1) * waiting, waiting)
        highest = highest_need(pipeline, device, needs, ends)
        if highest <= limit - held:
            return PlannedDevice(device, made, flight, limit, held, held + highest)
        budget -= highest - (limit - held)
    raise UsageError(
        f"device {device}: no schedules were found whose stages fit {size(limit)} together; the "
        f"last ones need {size(held + highest)}"
    )


def _plan(
    request: Request, pipeline: Pipeline, budget: int, elsewhere: int, progress: Interruptible
) -> Generated:
    try:
        return generate(replace(request, limit=Budget(str(budget), nbytes=budget)), progress)
    except InfeasibleBudgetError as error:
        smallest = error.smallest_bytes and error.smallest_bytes + elsewhere
        more = f"; {size(elsewhere)} of the device's memory is in use beside it"
        if request.in_flight == 1 and smallest:
            more += f": {smallest} bytes in all"
        raise InfeasibleBudgetError(
            f"{request.model}, of {pipeline.schedule}: {error}{more}",
            smallest,
            error.strategy,
            error.operation,
        ) from error


def _limit(request: Request, resident: Resident) -> int:
    """Return what a device has for activations: what was asked for, or the rest of its memory."""
    if isinstance(request.limit, DeviceMemory):
        target = request.target
        device = find_target(target).device if target else resolve_device(request.device)
        return request.limit.break_down(resident, kind_of(device).headroom_bytes).activations_bytes
    assert request.limit.nbytes is not None
    return request.limit.nbytes


def _resident(pipeline: Pipeline, stages: Mapping[int, Resident]) -> Resident:
    """Return what a device holds outside of the step: of inputs, the first stage's alone."""
    all_of_them = stages.values()
    return Resident(
        parameters_bytes=sum(one.parameters_bytes for one in all_of_them),
        trained_bytes=sum(one.trained_bytes for one in all_of_them),
        buffers_bytes=sum(one.buffers_bytes for one in all_of_them),
        inputs_bytes=pipeline.micro_batches * stages[0].inputs_bytes if 0 in stages else 0,
    )
