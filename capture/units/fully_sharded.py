"""A model under FSDP2 as one of several processes has it, without the others.

Collectives of PyTorch's `fake` backend allocate what real ones do and repeat this process's shard,
so that parameters are not the model's own: bytes are right, numbers are not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager

import torch
from torch import distributed as dist
from torch import nn

from remat_gen.capture.process.copies import copied_with
from remat_gen.capture.units.sharding import Sharding
from remat_gen.ir.errors import UsageError


def as_used(
    model: nn.Module, units: Collection[str], sharding: Sharding, device: torch.device
) -> AbstractContextManager[nn.Module]:
    """Return a context with the model as it is trained: itself, or sharded."""
    if not sharding:
        return contextlib.nullcontext(model)
    return fully_sharded(model, units, sharding, device)


@contextlib.contextmanager
def fully_sharded(
    model: nn.Module, units: Collection[str], sharding: Sharding, device: torch.device
) -> Iterator[nn.Module]:
    """Yield a copy of a model whose units, then itself, are sharded.

    Raises:
        UsageError: torch.distributed is missing or in use.
    """
    if not dist.is_available():
        raise UsageError("--fsdp: this PyTorch has no torch.distributed")
    if dist.is_initialized():
        raise UsageError("--fsdp plans in a process of its own: torch.distributed is in use here")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the backend

    processes = sharding.processes
    policy = MixedPrecisionPolicy(_dtype(sharding.parameters), _dtype(sharding.reduction))
    dist.init_process_group("fake", rank=0, world_size=processes, store=FakeStore())
    try:
        mesh = init_device_mesh(device.type, (processes,))
        sharded = copied_with(model, model)
        for path in units:
            fully_shard(sharded.get_submodule(path), mesh=mesh, mp_policy=policy)
        fully_shard(sharded, mesh=mesh, mp_policy=policy)
        yield sharded
    finally:
        dist.destroy_process_group()


def _dtype(name: str) -> torch.dtype | None:
    found: torch.dtype | None = getattr(torch, name) if name else None
    return found
