"""Modes that see each look at values while a forward runs: of Python's functions, of operators."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from remat_gen.capture.process.replaced import replaced
from remat_gen.capture.values.compared import Compared
from remat_gen.capture.values.looks import Answer, Kind, Look, Places

# What tensors without values make of these questions is other questions.
_OWN = ((FunctionalTensor, "__bool__"), (FunctionalTensor, "tolist"), (FakeTensor, "tolist"))
_aten = torch.ops.aten
_WHOLE = frozenset({Tensor.tolist, Tensor.numpy, Tensor.__array__})
_WHOLE_INDICES = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})


class Looking:
    """Sees the looks of a run; what `scalar` and `whole` return is what forward reads."""

    def __init__(self) -> None:
        self.places = Places()
        self.kind = Kind.NUMBER  # of the look that is being made
        self.last: Look | None = None

    @abstractmethod
    def scalar(self, tensor: Tensor, operator: Callable[..., Any]) -> Any:
        """Return the number of a tensor of one, and note the look as the `last`."""

    @abstractmethod
    def whole(self, tensor: Tensor, read: Callable[[], Any]) -> Any:
        """Return all numbers of a tensor, as `read` does where they are there."""

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """See the looks of what runs meanwhile."""
        with ExitStack() as stack:
            for kind, name in _OWN:
                stack.enter_context(replaced(kind, name, getattr(Tensor, name)))
            stack.enter_context(_Operators(self))
            stack.enter_context(_Functions(self))
            yield

    def kind_of(self, tensor: Tensor) -> Kind:
        """Return how the value of a tensor is being asked for."""
        return Kind.BOOL if tensor.dtype == torch.bool else self.kind


class _Operators(TorchDispatchMode):
    """Sees what reads values below Python, too."""

    supports_higher_order_operators = True

    def __init__(self, looking: Looking) -> None:
        TorchDispatchMode.__init__(self)
        self._looking = looking

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Answer a look, or run the operation."""
        kwargs = kwargs or {}
        number = _aten._local_scalar_dense.default
        if func is number:
            return self._looking.scalar(args[0], number)
        if func is _aten.equal.default:
            same = args[0].shape == args[1].shape
            return same and self._looking.scalar((args[0] == args[1]).all(), number)
        if func is _aten.allclose.default:
            close = _aten.isclose.default(*args, **kwargs)
            return self._looking.scalar(close.all(), number)
        return func(*args, **kwargs)


class _Functions(TorchFunctionMode):
    """Sees what Python asks tensors for."""

    def __init__(self, looking: Looking) -> None:
        TorchFunctionMode.__init__(self)
        self._looking = looking

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Answer a look, or call the function."""
        kwargs = kwargs or {}
        if func is Tensor.__bool__ and args[0].dtype != torch.bool:
            return func(args[0] != 0)
        if func in _WHOLE:
            return self._looking.whole(args[0], lambda: func(*args, **kwargs))
        if func is Tensor.item:
            return self._item(args[0])
        if func is Tensor.__getitem__:
            return func(args[0], self._index(args[1]))
        return func(*args, **kwargs)

    def _item(self, tensor: Tensor) -> Any:
        self._looking.kind, self._looking.last = Kind.ITEM, None
        try:
            number = Tensor.item(tensor)
        finally:
            self._looking.kind = Kind.NUMBER
        look = self._looking.last
        if look is not None and look.answer is Answer.COMPARED:
            return Compared(tensor, number, look.source)
        return number

    def _index(self, index: Any) -> Any:
        return index
