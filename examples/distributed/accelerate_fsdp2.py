"""Train planned layers by accelerate under FSDP2, with clipping.

remat-gen llama.py --units 'model.layers.*' --fsdp 2 --budget 60% -o llama_remat.py
torchrun --nproc-per-node 2 accelerate_fsdp2.py       (accelerate_fsdp2.py llama: eager's model)
"""

from importlib import import_module

import torch
from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from training import STEPS, batch, device, report, start

module = import_module(start("llama_remat"))
model = module.build_model().train()
plugin = FullyShardedDataParallelPlugin(
    fsdp_version=2,
    auto_wrap_policy="transformer_based_wrap",
    transformer_cls_names_to_wrap=[type(module.layers(model)[0]).__name__],
)
accelerator = Accelerator(cpu=not torch.cuda.is_available(), fsdp_plugin=plugin)
if device().type == "cpu":  # where accelerate does without its plugin, and prepares DDP
    accelerator.state.distributed_type = DistributedType.FSDP
    accelerator.state.fsdp_plugin = plugin
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
assert all(isinstance(part, FSDPModule) for part in [model, *module.layers(model)])
assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
losses = []
for step in range(STEPS):
    ids, targets = batch(module, step, module.BATCH, accelerator.process_index)
    loss = module.loss_of(model, ids, targets)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
report(losses, [parameter.full_tensor() for parameter in model.parameters()])
