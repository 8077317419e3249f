"""Train a planned model as a pipeline: each process has a stage, or two of an interleaved schedule.

    remat-gen gpt.py --units 'h.*' --budget 60% -o gpt_remat.py
    torchrun --nproc-per-node 2 pipeline.py       (pipeline.py gpt: the same with eager's model)

SCHEDULE=GPipe|1F1B|Interleaved1F1B in the environment chooses the schedule (1F1B).
"""

import os
from types import ModuleType

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
from training import STEPS, batch, device, loss_of, report, start

MICRO_BATCHES = 4


def stage_of(module: ModuleType, number: int, stages: int) -> nn.Module:
    """Build the model and leave out what other stages have; layers keep their names."""
    model = module.build_model()
    layers = list(model.h)
    each = len(layers) // stages
    for name in layers[: number * each] + layers[(number + 1) * each :]:
        del model.h[name]
    if number > 0:
        model.embed = None
    if number < stages - 1:
        model.head = None
    return model.to(device()).train()


module = start()
rank, size = dist.get_rank(), dist.get_world_size()
kind = get_schedule_class(os.environ.get("SCHEDULE", "1F1B"))
several = issubclass(kind, PipelineScheduleMulti)
numbers = range(rank, 2 * size, size) if several else [rank]
count = 2 * size if several else size
parts = []
for number in numbers:
    torch.manual_seed(0)
    parts.append(stage_of(module, number, count))
stages = [
    PipelineStage(p, number, count, device()) for p, number in zip(parts, numbers, strict=True)
]
schedule = kind(stages if several else stages[0], MICRO_BATCHES, loss_fn=loss_of)
optimizer = torch.optim.AdamW([p for part in parts for p in part.parameters()], lr=1e-2)
losses = []
for step in range(STEPS):
    ids, targets = batch(module, step, MICRO_BATCHES * module.BATCH)
    of_micro_batches: list[torch.Tensor] = []
    given = (ids,) if rank == 0 else ()
    if rank == size - 1:
        schedule.step(*given, target=targets, losses=of_micro_batches)
        losses.append(torch.stack(of_micro_batches).mean().item())
    else:
        schedule.step(*given)
    optimizer.step()
    optimizer.zero_grad()
report(losses, [p for part in parts for p in part.parameters()])
