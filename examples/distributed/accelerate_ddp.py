"""Train a planned model by accelerate under DDP; gradients are added up over two batches.

remat-gen llama.py --units 'model.layers.*' --budget 60% -o llama_remat.py
torchrun --nproc-per-node 2 accelerate_ddp.py       (accelerate_ddp.py llama: eager's model)
"""

from importlib import import_module

import torch
from accelerate import Accelerator
from torch.nn.parallel import DistributedDataParallel
from training import STEPS, batch, report, start

module = import_module(start("llama_remat"))
accelerator = Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=2)
model = module.build_model().train()
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
assert isinstance(model, DistributedDataParallel)
losses = []
for step in range(2 * STEPS):
    ids, targets = batch(module, step, module.BATCH, accelerator.process_index)
    with accelerator.accumulate(model):
        loss = module.loss_of(model, ids, targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    losses.append(loss.item())
parameters = list(model.parameters())
accelerator.free_memory()
del model  # it goes before the process group does: see report
report(losses, parameters)
