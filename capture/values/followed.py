"""What the values of tensors follow from: inputs, parameters, buffers, random numbers.

Followed are storages, through the operations of a real run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from remat_gen.capture.process.operands import storage_of, tensors_in, written_by
from remat_gen.ir.errors import TraceError

RANDOM = "random numbers"
WRITTEN = (
    "forward writes into x[i], where i is a tensor of one number that differs from step to step: "
    "use torch.where, index_add or scatter"
)
_NOTHING: frozenset[str] = frozenset()
_UNIFORM = "rand rand_like".split()  # in [0, 1)
_COPIES = "_to_copy clone".split()
_NEW = "zeros ones full empty".split()  # of which another tensor gives the shape alone
_BY_SHAPE = {name for new in _NEW for name in (f"{new}_like", f"new_{new}")}
_COMPARISONS = "lt le gt ge".split()


class Followed(TorchDispatchMode):
    """Notes for each storage what its values follow from; at first those of `named` tensors."""

    def __init__(self, named: Mapping[str, Tensor]) -> None:
        TorchDispatchMode.__init__(self)
        # A weak reference keeps a storage's address from being another's.
        self._from: dict[int | None, tuple[StorageWeakRef, frozenset[str]]] = {}
        self._only_read: dict[int, StorageWeakRef] = {}
        self._uniform: dict[int, StorageWeakRef] = {}
        for name, tensor in named.items():
            self._add(tensor, frozenset({name}))

    def reads(self, tensor: Tensor) -> frozenset[str]:
        """Return what a tensor's values follow from."""
        return self._from.get(storage_of(tensor), (None, _NOTHING))[1]

    def only_read(self, tensor: Tensor) -> Tensor:
        """Return a copy that stands for a view: nobody may write into it."""
        storage = StorageWeakRef(tensor.untyped_storage())
        self._only_read[storage.cdata] = storage
        return tensor

    def _add(self, tensor: Tensor, names: frozenset[str]) -> None:
        if tensor.layout is torch.strided:
            storage = StorageWeakRef(tensor.untyped_storage())
            self._from[storage.cdata] = storage, names | self.reads(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and note what its results follow from."""
        written = written_by(func, args, kwargs or {})
        if any(storage_of(tensor) in self._only_read for tensor in written):
            raise TraceError(WRITTEN)
        result = func(*args, **(kwargs or {}))
        given = tensors_in((args, kwargs))
        if func.overloadpacket.__name__ in _BY_SHAPE:
            given = []
        names = _NOTHING.union(*map(self.reads, given))
        if self._is_certain(func, args):
            names -= {RANDOM}
        self._note_draws(func, given, result, written)
        if torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()):
            names |= {RANDOM}
        if names:
            for tensor in (*tensors_in(result), *written):
                self._add(tensor, names)
        return result

    def _note_draws(self, func: Any, given: list[Tensor], result: Any, written: Any) -> None:
        """Keep in mind which storages hold what `torch.rand` draws, and nothing else."""
        for tensor in written:
            self._uniform.pop(tensor.untyped_storage()._cdata, None)
        name = func.overloadpacket.__name__
        copied = name in _COPIES and self._draws(given[0]) and _keeps(given[0].dtype, result.dtype)
        if copied or name in _UNIFORM:
            storage = StorageWeakRef(result.untyped_storage())
            self._uniform[storage.cdata] = storage

    def _draws(self, tensor: object) -> bool:
        return storage_of(tensor) in self._uniform

    def _is_certain(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Tell whether it compares a draw from [0, 1) with what none of them reaches, as a rate 0.

        So do layerdrop and stochastic depth that are off, in code that draws all the same.
        """
        if func.overloadpacket.__name__ not in _COMPARISONS or not self._draws(args[0]):
            return False
        bound = args[1]
        if isinstance(bound, Tensor) and not self.reads(bound) and bound.numel() == 1:
            bound = bound.item()
        if not isinstance(bound, int | float):
            return False
        strict = func.overloadpacket.__name__ in ("lt", "ge")  # these ask whether it is below
        return bound >= 1 or bound < 0 or (strict and bound == 0)


def _keeps(dtype: torch.dtype, made: torch.dtype) -> bool:
    """Tell whether nothing is rounded, not even up to 1."""
    return made is dtype or made is torch.float64
