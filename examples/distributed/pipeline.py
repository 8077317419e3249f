"""Train planned stages as a pipeline: each process has one, or two of an interleaved schedule.

    remat-gen stages gpt.py --stages 2 --micro-batches 4 --budget 4MB
    torchrun --nproc-per-node 2 pipeline.py       (pipeline.py gpt: the same with eager's model)

SCHEDULE=GPipe|1F1B|Interleaved1F1B in the environment chooses the schedule (1F1B); stages are
planned for it: `--schedule Interleaved1F1B --stages 4 --devices 2`.
"""

import os
from importlib import import_module

import torch
from torch import distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
from training import STEPS, batch, device, report, start

MICRO_BATCHES = 4

name = start("gpt_stage{stage}_remat")
rank, size = dist.get_rank(), dist.get_world_size()
kind = get_schedule_class(os.environ.get("SCHEDULE", "1F1B"))
several = issubclass(kind, PipelineScheduleMulti)
numbers = range(rank, 2 * size, size) if several else [rank]
count = 2 * size if several else size
parts = []
for number in numbers:
    torch.manual_seed(0)
    module = import_module(name.format(stage=number))
    parts.append(module.build_stage(number, count).to(device()).train())
stages = [
    PipelineStage(p, number, count, device()) for p, number in zip(parts, numbers, strict=True)
]
schedule = kind(stages if several else stages[0], MICRO_BATCHES, loss_fn=lambda loss, _: loss)
optimizer = torch.optim.AdamW([p for part in parts for p in part.parameters()], lr=1e-2)
losses = []
for step in range(STEPS):
    ids, targets = batch(module, step, MICRO_BATCHES * module.BATCH)
    of_micro_batches: list[torch.Tensor] = []
    given = (ids,) if rank == 0 else ()
    if rank == size - 1:  # the last stage's forward has the loss, so that its plan has it, too
        schedule.step(
            *given,
            targets=targets,
            target=targets,
            losses=of_micro_batches,
            return_outputs=False,
        )
        losses.append(torch.stack(of_micro_batches).mean().item())
    else:
        schedule.step(*given)
    optimizer.step()
    optimizer.zero_grad()
report(losses, [p for part in parts for p in part.parameters()])
