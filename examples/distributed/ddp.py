"""Train a planned model under DistributedDataParallel; gradients are added up over two batches.

remat-gen gpt.py --units 'h.*' --budget 60% -o gpt_remat.py       (or without --units)
torchrun --nproc-per-node 2 ddp.py            (ddp.py gpt: the same with eager's model)

Or with llama.py, --units 'model.layers.*' and ddp.py llama_remat.
"""

from importlib import import_module

import torch
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel
from training import STEPS, batch, device, report, start

module = import_module(start())
model = DistributedDataParallel(module.build_model().to(device()).train())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for step in range(STEPS):
    with model.no_sync():
        ids, targets = batch(module, step, module.BATCH, dist.get_rank())
        module.loss_of(model, ids, targets).backward()
    ids, targets = batch(module, step, module.BATCH, 10 + dist.get_rank())
    loss = module.loss_of(model, ids, targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
parameters = list(model.parameters())
del model  # it goes before the process group does: see report
report(losses, parameters)
