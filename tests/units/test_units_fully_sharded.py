"""FSDP2 around planned units: eager's collectives, eager's bits."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
from planned_units import MODELS, import_for_worker, plan
from torch import distributed as dist
from torch import multiprocessing as mp

LAYERS = 3


@pytest.mark.alone
def test_two_processes_gather_as_eager_does(tmp_path: Path) -> None:
    pair = plan(tmp_path, "deep", "70%")
    assert pair.generated.output is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    paths = MODELS / "deep.py", pair.generated.output
    mp.spawn(_compare, (port, *map(str, paths), str(tmp_path)), nprocs=2)
    eager, planned = (torch.load(tmp_path / f"{path.stem}.pt") for path in paths)
    assert planned["counts"] == eager["counts"] == [(LAYERS + 1, LAYERS, LAYERS + 1)] * 3
    pairs = list(zip(eager["parameters"], planned["parameters"], strict=True))
    assert pairs and all(torch.equal(a, b) for a, b in pairs)


def _compare(rank: int, port: int, original: str, planned: str, folder: str) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    for path in (Path(original), Path(planned)):
        found = _steps(rank, path)
        if rank == 0:
            torch.save(found, Path(folder) / f"{path.stem}.pt")
    dist.destroy_process_group()


def _steps(rank: int, path: Path) -> dict[str, object]:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.debug import CommDebugMode

    module = import_for_worker(path)
    torch.manual_seed(0)
    model = module.build_model().train()
    for layer in model.h:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    counts = []
    for step in range(3):
        torch.manual_seed(10 + rank + step)
        (ids,) = module.example_inputs()
        with CommDebugMode() as forward:
            loss = model(ids)
        with CommDebugMode() as backward:
            loss.backward()
        both = (_count(forward, "gather"), _count(backward, "gather"), _count(backward, "scatter"))
        counts.append(both)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    parameters = [parameter.full_tensor().detach() for parameter in model.parameters()]
    return {"counts": counts, "parameters": parameters}


def _count(mode: object, word: str) -> int:
    counted = mode.get_comm_counts()  # type: ignore[attr-defined]
    return sum(n for operation, n in counted.items() if word in str(operation))
