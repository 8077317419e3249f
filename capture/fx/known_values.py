"""Values of fake tensors that depend on nothing but the code: made by chosen operators alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.weak import WeakIdKeyDictionary

from remat_gen.capture.process.operands import storage_of, tensors_in, written_by

Wanted: TypeAlias = Callable[[Tensor, list[Tensor]], bool]
"""Tells whether the values of a result are kept, made from such tensors."""

_SMALL = 1 << 22  # elements: positions of any batch, masks of any length; no table of a vocabulary


class KnownValues(TorchDispatchMode):
    """Keeps the values of small fake tensors, on the CPU, that `operators` make of known ones."""

    supports_higher_order_operators = True

    def __init__(self, operators: frozenset[str], wanted: Wanted) -> None:
        TorchDispatchMode.__init__(self)
        self._operators, self._wanted = operators, wanted
        self._values = WeakIdKeyDictionary()

    def value(self, fake: Tensor) -> Tensor | None:
        """Return a tensor's values, if they are known."""
        known: Tensor | None = self._values.get(fake)
        return known

    def holds(self, fake: Tensor, condition: Callable[[Tensor], bool]) -> bool:
        """Tell whether a tensor's values are known and fulfil a condition."""
        value = self.value(fake)
        if value is None:
            return False
        with _disable_current_modes():
            return condition(value)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and once more with values where all that it reads is known."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not isinstance(func, torch._ops.OpOverload):
            return result
        read = tensors_in((args, kwargs))
        known = all(x in self._values for x in read) and str(func) in self._operators
        written = {*map(storage_of, written_by(func, args, kwargs))} - {None}
        if written and not known and not written.isdisjoint(map(storage_of, self._values.keys())):
            self._values.clear()  # also of views: rather know nothing
        wanted = known and _is_small(result) and self._wanted(result, read)
        if wanted and not _has_step(func, args):
            self._values[result] = self._run(func, args, kwargs)
        return result

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def value(leaf: Any) -> Any:
            return self._values[leaf] if isinstance(leaf, Tensor) else leaf

        args, kwargs = pytree.tree_map(value, (args, kwargs))
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        with _disable_current_modes():
            return func(*args, **kwargs)


def _has_step(operator: torch._ops.OpOverload, args: tuple[Any, ...]) -> bool:
    return str(operator) == "aten.slice.Tensor" and len(args) > 4


def _is_small(result: object) -> bool:
    return isinstance(result, Tensor) and result.numel() <= _SMALL
