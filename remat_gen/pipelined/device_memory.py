"""What a device of a pipeline needs: its stages' plans in their order, and what PyTorch holds.

`PipelineStage` receives each micro-batch, and each gradient, into a tensor of its own that it makes
for the first step and keeps; the last stage's results are kept for the caller; what is sent is held
until the send is waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remat_gen.pipelined.micro_batch_order import Pipeline, PipelineSchedule, held_at


@dataclass(frozen=True, slots=True)
class StageEnds:
    """The bytes of what comes into a stage and of what it returns, of one micro-batch."""

    input_bytes: int
    output_bytes: int


@dataclass(frozen=True, slots=True)
class StageNeed:
    """What one micro-batch needs: `peak_bytes` while it runs alone, `waiting_bytes` between."""

    peak_bytes: int
    waiting_bytes: int


def held_by_pipeline(pipeline: Pipeline, device: int, ends: Mapping[int, StageEnds]) -> int:
    """Return what PyTorch holds on a device beside what its stages need."""
    count, total = pipeline.micro_batches, 0
    for stage in pipeline.stages_of(device):
        first, last = stage == 0, stage == pipeline.stages - 1
        inputs = 0 if first else ends[stage].input_bytes
        results = ends[stage].output_bytes
        returned = count - _most_at_once(pipeline, device, stage)  # the others are in flight
        total += count * inputs + (returned if last else count) * results
        if pipeline.schedule is PipelineSchedule.ONE_F_ONE_B:
            total += inputs  # the gradient that is sent while the next backward runs
        elif pipeline.schedule is PipelineSchedule.GPIPE:
            total += (count - 1) * max(0, inputs - results)  # sent, where its results have gone
        else:
            total += count * (inputs + (0 if last else results))  # sends wait for the step's end
    return total


def highest_need(
    pipeline: Pipeline,
    device: int,
    needs: Mapping[int, StageNeed],
    ends: Mapping[int, StageEnds],
) -> int:
    """Return the most that the stages of a device need at once, beside what the pipeline holds."""
    highest = 0
    if (last := pipeline.stages - 1) in needs:  # what the last stage returned is joined at the end
        at_once = _most_at_once(pipeline, device, last)
        highest = (pipeline.micro_batches + at_once) * ends[last].output_bytes
    for action, held in held_at(pipeline.order(device)):
        waiting = sum(needs[stage].waiting_bytes * count for stage, count in held.items())
        own = needs[action.stage]
        highest = max(highest, waiting - own.waiting_bytes + own.peak_bytes)
    return highest


def _most_at_once(pipeline: Pipeline, device: int, stage: int) -> int:
    return max(held[stage] for _, held in held_at(pipeline.order(device)))
