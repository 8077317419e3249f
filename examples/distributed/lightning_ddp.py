"""Train a planned model by Lightning under DDP, a batch's rows in both processes.

remat-gen gpt.py --budget 60% -o gpt_remat.py       (or --units 'h.*')
torchrun --nproc-per-node 2 lightning_ddp.py        (lightning_ddp.py gpt: eager's model)
"""

from importlib import import_module

import pytorch_lightning as lightning
import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from training import STEPS, batch, loss_of, report, start

module = import_module(start())


class Task(lightning.LightningModule):
    """What Lightning calls: the planned network is a part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = module.build_model()
        self.losses: list[float] = []

    def training_step(self, rows: list[Tensor], index: int) -> Tensor:
        ids, targets = rows
        loss = loss_of(self.net(ids), targets)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


data = TensorDataset(*map(Tensor.cpu, batch(module, 0, STEPS * dist.get_world_size() * module.BATCH)))
trainer = lightning.Trainer(
    accelerator="auto",
    devices=dist.get_world_size(),
    strategy="ddp",
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
task = Task()
trainer.fit(task, DataLoader(data, batch_size=module.BATCH))
assert isinstance(trainer.strategy.model, DistributedDataParallel)
losses, parameters = task.losses, list(task.parameters())
del trainer, task
report(losses, parameters)
