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
from training import STEPS, batch, report, start

module = import_module(start())


class Task(lightning.LightningModule):
    """What Lightning calls: the planned network is a part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = module.build_model()
        self.losses: list[float] = []

    def on_train_start(self) -> None:
        assert isinstance(self.trainer.strategy.model, DistributedDataParallel)

    def training_step(self, rows: list[Tensor], index: int) -> Tensor:
        loss = module.loss_of(self.net, *rows)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


processes = dist.get_world_size()
ids, targets = batch(module, 0, STEPS * processes * module.BATCH)
data = TensorDataset(ids.cpu(), targets.cpu())
trainer = lightning.Trainer(
    accelerator="auto",
    devices=processes,
    strategy="ddp",
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
task = Task()
trainer.fit(task, DataLoader(data, batch_size=module.BATCH))
losses, parameters = task.losses, list(task.parameters())
del trainer, task
report(losses, parameters)
