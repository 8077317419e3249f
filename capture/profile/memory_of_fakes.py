"""Watch every allocation of tensors without values: what a step holds, operation by operation.

Fake tensors have storages that live and die as real ones do, whoever holds them: a variable of
Python's, a node of autograd, a temporary in C++. What a kernel needs inside it is not seen.

Autograd adds a second gradient into the first, where nobody else has that, and fills zeros that it
made for it: not so under a mode that watches. What an operation makes of such a tensor counts once
it is known that that one lives on.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from remat_gen.capture.lower.eager_nodes import FILLING

_TWO = 2  # operands
Kind: TypeAlias = tuple[tuple[int, ...], str]  # a tensor's shape and dtype ("float32")
Call: TypeAlias = tuple[str, tuple[Kind, ...]]  # an operator, and each of its tensors


class FakeMemory(TorchDispatchMode):
    """Counts bytes while it is entered; `workspace` is what calls need inside them."""

    def __init__(self, workspace: Mapping[Call, int], alignment: int = 1) -> None:
        TorchDispatchMode.__init__(self)
        self.live_bytes = self._highest = 0
        self._workspace, self._alignment = workspace, alignment
        self._calls: dict[str, dict[Sequence[Kind], int]] = {}
        for (target, kinds), inside in workspace.items():
            self._calls.setdefault(target, {})[kinds] = inside
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._nodes: dict[int, int] = {}  # of autograd, by what they made
        self._sum: tuple[weakref.ref[torch.UntypedStorage], int] | None = None

    @property
    def peak_bytes(self) -> int:
        """Return the highest number of bytes so far."""
        self._judge_sum()
        return self._highest

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator; memory that it is given was there before, or is known."""
        self._judge_sum()
        given = _tensors((args, kwargs))
        for tensor in given:
            self._know(tensor, counted=False)
        result = func(*args, **(kwargs or {}))
        shown = _shows_constant(func, given)
        for tensor in _tensors(result):
            self._know(tensor, counted=not shown)
        inside = self._inside(call_of(func, given))
        if self._sums_up(func, given) or self._fills(func, given):
            self._sum = self._storages[given[0].untyped_storage()._cdata], self.live_bytes + inside
        else:
            self._highest = max(self._highest, self.live_bytes + inside)
        return result

    def _inside(self, call: Call) -> int:
        """Return a call's workspace; a trace may leave out tensors that a kernel does not read."""
        known = self._workspace.get(call)
        if known is not None:
            return known
        calls = self._calls.get(call[0], {}).items()
        return max((inside for few, inside in calls if _are_among(few, call[1])), default=0)

    def _sums_up(self, func: object, given: Sequence[Tensor]) -> bool:
        """Tell whether autograd may add up gradients: the first is another node's."""
        if func is not torch.ops.aten.add.Tensor or len({_kind(tensor) for tensor in given}) != 1:
            return False
        maker = self._nodes.get(given[0].untyped_storage()._cdata)
        others = maker is not None and maker != _node()
        return len(given) == _TWO and others and not given[0]._is_view()

    def _fills(self, func: object, given: Sequence[Tensor]) -> bool:
        """Tell whether autograd fills a tensor in place: it is the zeros of the same node."""
        if str(func) not in FILLING or not given:
            return False
        maker = self._nodes.get(given[0].untyped_storage()._cdata)
        return maker is not None and maker == _node()

    def _judge_sum(self) -> None:
        if self._sum is not None:
            first, nbytes = self._sum
            if first() is not None:
                self._highest = max(self._highest, nbytes)
            self._sum = None

    def _know(self, tensor: Tensor, *, counted: bool) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._storages:
            return
        nbytes = -(-storage.nbytes() // self._alignment) * self._alignment if counted else 0

        def died(_: object) -> None:
            del self._storages[key]
            self._nodes.pop(key, None)
            self.live_bytes -= nbytes

        self._storages[key] = weakref.ref(storage, died)
        node = _node()
        if counted and node is not None:
            self._nodes[key] = node
        self.live_bytes += nbytes


def _shows_constant(func: Any, given: Sequence[Tensor]) -> bool:
    """Tell whether the result is a view of a tensor that has values: memory that is there."""
    if all(isinstance(tensor, FakeTensor) for tensor in given):
        return False
    returns = getattr(getattr(func, "_schema", None), "returns", ())
    return any(returned.alias_info is not None for returned in returns)


def _node() -> int | None:
    """Return the number of the node of autograd that runs, if one does."""
    node = torch._C._current_autograd_node()
    return None if node is None else node._sequence_nr()


def call_of(func: object, given: object) -> Call:
    """Return what is known of a call while a step runs: the operator, and the tensors given."""
    return str(func), tuple(map(_kind, _tensors(given)))


def _are_among(few: Iterable[Kind], many: Iterable[Kind]) -> bool:
    """Tell whether some stand among others, in the same order."""
    left = iter(many)
    return all(kind in left for kind in few)


def _kind(tensor: Tensor) -> Kind:
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")


def _tensors(value: object) -> list[Tensor]:
    """Return the tensors in a value that have memory."""
    leaves = pytree.tree_leaves(value)
    found = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.layout is torch.strided]
    return [tensor for tensor in found if tensor.device.type != "meta"]
