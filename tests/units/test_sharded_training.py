"""FSDP2 as training loops use it: kept gathered, gradients added up, saved and gone on from."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch
from planned_units import Pair, free_port, import_for_worker, plan
from torch import Tensor, nn
from torch import distributed as dist
from torch import multiprocessing as mp

SAVED = "checkpoint of eager"


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return plan(tmp_path_factory.mktemp("trained"), "deep", "70%", fsdp=2)


@pytest.mark.alone
def test_training_goes_on_from_eagers_checkpoint(sharded: Pair) -> None:
    """Both go on from what eager's steps saved, each of them by names of parameters."""
    assert sharded.generated.plan.predicted.reruns > 0
    original, planned = sharded.original.__file__, sharded.generated.output
    assert original is not None and planned is not None
    mp.spawn(_train_both, (free_port(), [original, str(planned)]), nprocs=2)
    eager, ours = (torch.load(Path(path).with_suffix(".pt")) for path in (original, planned))
    assert eager.keys() == ours.keys() and len(eager) > 20
    assert [name for name in eager if not torch.equal(eager[name], ours[name])] == []


def _train_both(rank: int, port: int, paths: list[str]) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    for path in map(Path, paths):
        found = _train(
            rank, import_for_worker(path), path.parent / SAVED, save=path == Path(paths[0])
        )
        if rank == 0:
            torch.save(found, path.with_suffix(".pt"))
    dist.barrier()  # one that ends while the other goes on may abort in gloo's threads
    dist.destroy_process_group()


def _train(rank: int, module: ModuleType, saved: Path, *, save: bool) -> dict[str, Tensor]:
    """Return parameters, and AdamW's averages, after steps before and behind a checkpoint."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model, optimizer = _sharded(module)
    _steps(rank, module, model, optimizer)
    weights, state = get_state_dict(model, optimizer)
    before = _whole(weights) | _whole(state["state"])
    if save:
        checkpoint.save({"model": weights, "optimizer": state}, checkpoint_id=saved)
    dist.barrier()
    model, optimizer = _sharded(module)
    weights, state = get_state_dict(model, optimizer)
    checkpoint.load({"model": weights, "optimizer": state}, checkpoint_id=saved)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    _steps(rank, module, model, optimizer)
    weights, state = get_state_dict(model, optimizer)
    after = _whole(weights) | _whole(state["state"])
    return before | {f"later {name}": tensor for name, tensor in after.items()}


def _sharded(module: ModuleType) -> tuple[nn.Module, torch.optim.Optimizer]:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = module.build_model().train()
    for part in (*model.h, model):
        fully_shard(part, reshard_after_forward=False)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def _steps(
    rank: int, module: ModuleType, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Train two steps of two batches each, whose gradients are reduced once."""
    for step in range(2):
        for last in (False, True):
            model.set_requires_gradient_sync(last)  # type: ignore[operator]
            torch.manual_seed(10 + rank + 2 * step + last)
            model(*module.example_inputs()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def _whole(state: dict[str, object], within: str = "") -> dict[str, Tensor]:
    """Return the tensors of a state, each gathered, by their paths."""
    from torch.distributed.tensor import DTensor

    found: dict[str, Tensor] = {}
    for name, value in state.items():
        if isinstance(value, dict):
            found |= _whole(value, f"{within}{name} ")
        elif isinstance(value, Tensor):
            whole = value.full_tensor() if isinstance(value, DTensor) else value
            found[within + name] = whole.detach().clone()
    return found
