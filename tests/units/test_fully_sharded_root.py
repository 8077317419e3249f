"""FSDP2 on the root alone, around a model that is planned as a whole: eager's gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from planned_units import Pair, free_port, import_for_worker, plan
from torch import Tensor
from torch import distributed as dist
from torch import multiprocessing as mp

WIDER = {"hidden_size=32": "hidden_size=128", "intermediate_size=64": "intermediate_size=352"}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    pytest.importorskip("transformers")
    return plan(tmp_path_factory.mktemp("root"), "llama", "60%", WIDER, whole=True)


@pytest.mark.alone
def test_two_processes_have_eagers_gradients(llama: Pair) -> None:
    assert llama.generated.plan.predicted.reruns > 0
    original, planned = llama.original.__file__, llama.generated.output
    assert original is not None and planned is not None
    mp.spawn(_step_of_both, (free_port(), [original, str(planned)]), nprocs=2)
    for rank in range(2):
        eager, ours = (torch.load(_kept(Path(path), rank)) for path in (original, planned))
        assert eager.keys() == ours.keys() and len(eager) > 1
        assert [name for name in eager if not torch.equal(eager[name], ours[name])] == []


def _step_of_both(rank: int, port: int, paths: list[str]) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    for path in map(Path, paths):
        torch.save(_step(rank, path), _kept(path, rank))
    dist.destroy_process_group()


def _step(rank: int, path: Path) -> dict[str, Tensor]:
    """Return the loss of a process, and the gradients that both have."""
    from torch.distributed.fsdp import fully_shard

    module = import_for_worker(path)
    torch.manual_seed(0)
    model = module.build_model().train()
    fully_shard(model)
    torch.manual_seed(10 + rank)
    loss = model(**module.example_inputs()).loss
    loss.backward()
    left = {name: parameter.grad.full_tensor() for name, parameter in model.named_parameters()}
    return left | {"": loss.detach()}


def _kept(path: Path, rank: int) -> Path:
    return path.with_name(f"{path.stem}_{rank}.pt")
