"""Modes that see each look at values while a forward runs: of Python's functions, of operators."""

from __future__ import annotations

import contextlib
import functools
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from remat_gen.capture.as_eager.kernels import counted
from remat_gen.capture.process.replaced import replaced
from remat_gen.capture.values.compared import Compared
from remat_gen.capture.values.looks import Answer, Kind, Look, Places, answer

# What tensors without values make of these questions is other questions.
_REPR = (FunctionalTensor, "__repr__")
_OWN = (
    (FunctionalTensor, "__bool__"),
    (FunctionalTensor, "tolist"),
    (FakeTensor, "tolist"),
    _REPR,
)
_aten = torch.ops.aten
_NONZERO = _aten.nonzero.default
_WHOLE = frozenset({Tensor.tolist, Tensor.numpy, Tensor.__array__})
_TEXT = frozenset({Tensor.__format__, Tensor.__repr__})
_INDICES = frozenset({torch.int32, torch.int64})


Sized: TypeAlias = Callable[[int], Tensor]


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

    @abstractmethod
    def made(self, make: Callable[[], Any], sized: Sized | None) -> Any:
        """Return what has a shape that depends on values, as `make` does where they are there.

        `sized` makes it of a number of rows that is known, where an operator can.
        """

    @abstractmethod
    def picked(self, index: Tensor, pick: Callable[[], Tensor]) -> Tensor | None:
        """Return what a tensor's number picks, as `pick` does; None where it is a number."""

    @abstractmethod
    def selected(self, tensor: Tensor, mask: Tensor) -> Any:
        """Return what a mask selects of a tensor."""

    @abstractmethod
    def text(self, tensor: Tensor, write: Callable[[], str]) -> str:
        """Return a tensor as text, as `write` does where its values are there."""

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

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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
        if func is _aten.bincount.default:
            counts = counted(*args, **kwargs)
            if counts is not None:  # no look: as it is traced
                return counts
        if torch.Tag.dynamic_output_shape in func.tags and func is not _aten.index.Tensor:
            sized = functools.partial(positions, args[0]) if func is _NONZERO else None
            return self._looking.made(lambda: func(*args, **kwargs), sized)
        return func(*args, **kwargs)


class _Functions(TorchFunctionMode):
    """Sees what Python asks tensors for."""

    def __init__(self, looking: Looking) -> None:
        TorchFunctionMode.__init__(self)
        self._looking = looking

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer a look, or call the function."""
        kwargs = kwargs or {}
        if func is Tensor.__bool__ and args[0].dtype != torch.bool:
            return func(args[0] != 0)
        if func in _WHOLE:
            return self._looking.whole(args[0], lambda: func(*args, **kwargs))
        if func is Tensor.item:
            return self._item(args[0])
        if func is Tensor.__getitem__:
            return self._part(*args)
        if func in _TEXT:
            return self._looking.text(args[0], lambda: func(*args, **kwargs))
        if func is F.one_hot and (count := _classes(*args, **kwargs)) >= 0:
            return (args[0].unsqueeze(-1) == torch.arange(count, device=args[0].device)).long()
        return _called(func, args, kwargs)

    def _item(self, tensor: Tensor) -> Any:
        self._looking.kind, self._looking.last = Kind.ITEM, None
        try:
            number = Tensor.item(tensor)
        finally:
            self._looking.kind = Kind.NUMBER
        look = self._looking.last
        if look is not None and look.answer is Answer.COMPARED:
            return Compared(tensor, look)
        return number

    def _part(self, tensor: Tensor, index: Any) -> Any:
        """Return a part; a mask stands for its positions, which may be known."""
        parts = index if isinstance(index, tuple) else (index,)
        if sum(map(_is_number, parts)) == 1 and all(_is_number(p) or _is_all(p) for p in parts):
            (number,) = filter(_is_number, parts)
            where = [None if _is_all(part) else part for part in parts]
            pick = functools.partial(_aten.index.Tensor, tensor, where)
            found = self._looking.picked(number, pick)
            return Tensor.__getitem__(tensor, index) if found is None else found
        if len(parts) == 1 and _is_mask(parts[0]):
            return self._looking.selected(tensor, parts[0])
        if any(map(_is_mask, parts)):
            parts = tuple(
                i for p in parts for i in (p.nonzero().unbind(1) if _is_mask(p) else (p,))
            )
        return Tensor.__getitem__(tensor, parts if len(parts) > 1 else parts[0])


@contextlib.contextmanager
def unanswered() -> Iterator[None]:
    """Stop where a forward without values writes a tensor as text, as it stops at a number.

    The text would be that of no step, and nothing else would tell of it.
    """
    kind, name = _REPR
    with replaced(kind, name, getattr(Tensor, name)), _Unanswered():
        yield


class _Unanswered(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function that writes no tensor without values.

        Raises:
            LookupError: it does.
        """
        if func in _TEXT and isinstance(args[0], FakeTensor | FunctionalTensor):
            raise LookupError("a tensor without values has no text")
        return _called(func, args, kwargs or {})


def _called(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function; what it asks of lengths is an operator's question, or forward's own."""
    if getattr(func, "__name__", "").startswith("is_"):  # is_contiguous, whose answer Python gets
        return answer(func, args, kwargs)
    return func(*args, **kwargs)


def positions(tensor: Tensor, rows: int) -> Tensor:
    """Return where a tensor is not 0, which is known to be in so many places."""
    found: Tensor = _aten.nonzero_static.default(tensor, size=rows)
    return found


def _classes(_tensor: Tensor, num_classes: int = -1) -> int:
    """Return how many classes one_hot is told of: then a trace does not look for the largest."""
    return num_classes


def _is_number(part: object) -> bool:
    return isinstance(part, Tensor) and part.ndim == 0 and part.dtype in _INDICES


def _is_mask(part: object) -> bool:
    return isinstance(part, Tensor) and part.ndim > 0 and part.dtype == torch.bool


def _is_all(part: object) -> bool:
    return isinstance(part, slice) and part == slice(None)
