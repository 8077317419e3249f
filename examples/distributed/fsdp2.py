"""Train planned layers under FSDP2, each one sharded by itself, with clipping.

remat-gen gpt.py --units 'h.*' --fsdp 2 --budget 60% -o gpt_remat.py
torchrun --nproc-per-node 2 fsdp2.py          (fsdp2.py gpt: the same with eager's model)

Or with llama.py, --units 'model.layers.*' and fsdp2.py llama_remat.
"""

from importlib import import_module

import torch
from torch import distributed as dist
from torch.distributed.fsdp import fully_shard
from training import STEPS, batch, device, report, start

module = import_module(start())
model = module.build_model().to(device()).train()
for layer in module.layers(model):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for step in range(STEPS):
    ids, targets = batch(module, step, module.BATCH, dist.get_rank())
    loss = module.loss_of(model, ids, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
report(losses, [parameter.full_tensor() for parameter in model.parameters()])
