"""Train a planned model by the Trainer of transformers under DDP, a batch's rows in both processes.

remat-gen llama.py --units 'model.layers.*' --budget 60% -o llama_remat.py
torchrun --nproc-per-node 2 trainer_ddp.py       (trainer_ddp.py llama: eager's model)
"""

from importlib import import_module
from tempfile import TemporaryDirectory

import torch
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel
from training import STEPS, batch, report, start
from transformers import Trainer, TrainingArguments

module = import_module(start("llama_remat"))
tokens, _ = batch(module, 0, STEPS * dist.get_world_size() * module.BATCH)
rows = [{"input_ids": row, "labels": row} for row in tokens.cpu()]
with TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=module.BATCH,
        num_train_epochs=1,
        learning_rate=1e-2,
        ddp_find_unused_parameters=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    trainer = Trainer(model=module.build_model(), args=arguments, train_dataset=rows)
    trainer.train()
assert isinstance(trainer.model_wrapped, DistributedDataParallel)
losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
parameters = list(trainer.model.parameters())
trainer.accelerator.free_memory()
del trainer  # it has the wrapped model, which goes before the process group does: see report
report(losses, parameters)
