"""The plans of a pipeline's stages as a table of 80 columns, and as an object for programs."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.text import Text

from remat_gen.ir.byte_text import size
from remat_gen.pipelined.planning_stages import PlannedDevice, PlannedStages
from remat_gen.plan.pipeline import Generated
from remat_gen.show.summary import summary_json
from remat_gen.terminal.printing import number_table

_HEAD = ("stage", "device", "in flight", "eager", "planned", "budget", "time")


def stages_table(planned: PlannedStages) -> Group:
    """Return a row for each stage, and what each device holds."""
    rows = (
        _cells(s, device, made) for device in planned.devices for s, made in device.stages.items()
    )
    table = number_table(_HEAD, rows)
    pipeline = planned.pipeline
    title = (
        f"{pipeline.schedule}, {pipeline.stages} stages on {pipeline.devices} devices, "
        f"{pipeline.micro_batches} micro-batches"
    )
    return Group(Text(title), Text(), table, Text(), *map(Text, stages_lines(planned)))


def _cells(stage: int, device: PlannedDevice, made: Generated) -> list[str]:
    predicted = made.plan.predicted
    return [
        str(stage),
        str(device.device),
        str(device.in_flight),
        size(predicted.eager_peak_bytes),
        size(predicted.peak_bytes),
        size(made.plan.asked.budget_bytes),
        f"× {predicted.time_us / predicted.eager_time_us:.3f}",
    ]


def stages_lines(planned: PlannedStages) -> list[str]:
    """Say what each device needs, and which stage sets the pace."""
    lines = [
        f"device {d.device}: {size(d.peak_bytes)} of {size(d.limit_bytes)}, "
        f"{size(d.pipeline_bytes)} of them for the pipeline's own tensors"
        for d in planned.devices
    ]
    paces = [
        (sum(made.plan.predicted.time_us for made in d.stages.values()), d.device)
        for d in planned.devices
    ]
    pace, device = max(paces)
    if not planned.has_loss:
        lines.append("loss: outside of the last stage, so that what it holds is not counted")
    lines.append(f"pace: device {device}, {pace / 1000:.1f} ms for each micro-batch")
    names = [made.output.name for made in planned.stages if made.output]
    return [*lines, f"written: {', '.join(names)}"]


def stages_json(planned: PlannedStages) -> dict[str, Any]:
    """Return the pipeline, its devices, and each stage as `generate --json` has it."""
    pipeline = planned.pipeline
    return {
        "schedule": pipeline.schedule.value,
        "micro_batches": pipeline.micro_batches,
        "has_loss": planned.has_loss,
        "devices": [
            {
                "device": d.device,
                "stages": [*d.stages],
                "in_flight": d.in_flight,
                "limit_bytes": d.limit_bytes,
                "pipeline_bytes": d.pipeline_bytes,
                "peak_bytes": d.peak_bytes,
            }
            for d in planned.devices
        ],
        "stages": [summary_json(made) for made in planned.stages],
    }
