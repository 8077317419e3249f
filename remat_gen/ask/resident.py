"""What a model and its inputs hold on the device outside of the step."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor
from torch.utils import _pytree as pytree

from remat_gen.ask.budget import Resident
from remat_gen.capture.load.load import Loaded


def resident(loaded: Loaded) -> Resident:
    """Return the bytes of a loaded model's parameters and buffers and of its inputs."""
    parameters = list(loaded.model.parameters())
    leaves = pytree.tree_leaves((loaded.args, loaded.kwargs))
    return Resident(
        parameters_bytes=_total(parameters),
        trained_bytes=_total(p for p in parameters if p.requires_grad),
        buffers_bytes=_total(loaded.model.buffers()),
        inputs_bytes=_total(leaf for leaf in leaves if isinstance(leaf, Tensor)),
    )


def _total(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of all storages, each once."""
    storages = {t.untyped_storage()._cdata: t.untyped_storage() for t in tensors}
    return sum(storage.nbytes() for storage in storages.values())
