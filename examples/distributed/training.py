"""What the scripts of this folder share: the process group, the data, and what they report."""

import argparse
import gc
import hashlib
from collections.abc import Iterable
from types import ModuleType

import torch
from torch import Tensor
from torch import distributed as dist

STEPS = 3


def start(planned: str = "gpt_remat") -> str:
    """Join the processes that torchrun started; return the name of the module with the model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("module", nargs="?", default=planned, help="gpt or llama is eager's")
    name = parser.parse_args().module
    torch.set_num_threads(1)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    if torch.cuda.is_available():
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    torch.manual_seed(0)
    return name


def device() -> torch.device:
    """Return where this process computes."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def batch(module: ModuleType, step: int, samples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return tokens and what follows each: int64[samples, CONTEXT] both."""
    generator = torch.Generator().manual_seed(1000 * step + seed)
    shape = samples, module.CONTEXT + 1
    tokens = torch.randint(module.VOCABULARY, shape, generator=generator)
    return tokens[:, :-1].contiguous().to(device()), tokens[:, 1:].contiguous().to(device())


def report(losses: Iterable[float], parameters: Iterable[Tensor]) -> None:
    """Print the losses, and a hash of the parameters' bits: eager's are the same."""
    bits = hashlib.sha256()
    for parameter in parameters:
        bits.update(parameter.detach().cpu().view(torch.uint8).numpy().tobytes())
    said = " ".join(f"{loss:.6f}" for loss in losses)
    print(f"rank {dist.get_rank()}: losses {said}, parameters {bits.hexdigest()[:16]}", flush=True)
    # DDP lies in a cycle: were it the last to hold the group, gloo's thread and it would wait for
    # each other (its reducer ends that thread while it has the GIL, which the thread may want)
    gc.collect()
    dist.destroy_process_group()
