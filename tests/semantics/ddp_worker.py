"""One of two processes: a planned model under DistributedDataParallel beside the original's."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time
from pathlib import Path
from types import ModuleType

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def _import(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OPTIONS = {
    "plain": {},
    "bucket views": {"gradient_as_bucket_view": True},
    "static graph": {"static_graph": True},
    "unused": {"find_unused_parameters": True},
}


def _gradients(module: ModuleType, rank: int, way: str) -> list[Tensor | None]:
    torch.manual_seed(0)
    model: nn.Module = module.build_model().train()
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.001, **OPTIONS[way])
    torch.manual_seed(10 + rank)
    args = module.example_inputs()
    # a static graph is recorded in the first step, which must not accumulate (eager's neither)
    for accumulating in (False, True, False):
        with wrapped.no_sync() if accumulating else contextlib.nullcontext():
            wrapped(*args).backward()
    return [p.grad for p in model.parameters()]


def main(folder: Path, rank: int, ways: list[str]) -> None:
    """Compare the gradients of both modules after accumulating and synchronised steps."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / f"store-{ways[0]}"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    names = ("model.py", "model_remat.py")
    modules = [_import(folder / name) for name in names]
    for way in ways:
        expected, actual = (_gradients(module, rank, way) for module in modules)
        for one, other in zip(expected, actual, strict=True):
            if one is None or other is None:
                assert one is other, way
            else:
                assert torch.equal(one, other), way
    store.add("done", 1)
    while store.add("done", 0) < 2:
        time.sleep(0.01)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    os._exit(0)  # gloo's threads, torn down while the other process still talks, can abort
