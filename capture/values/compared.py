"""Numbers of tensors that may be compared, and nothing else: `if loss.item() > 100: raise`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from remat_gen.capture.load.shell_words import shell_word
from remat_gen.capture.refuse.places import Place
from remat_gen.capture.values.looks import INPUT, Look
from remat_gen.ir.errors import TraceError

KEPT = (
    "a tensor becomes a Python number (.item(), int()), and it is another one in each step: keep "
    "it a tensor"
)


class NumberError(TraceError):
    """A tensor's number decides what runs, and it is another one in the next step.

    That is at its `place`; `instead` says what may be done where it follows from inputs alone.
    """

    place = Place()
    instead = ""


def refuse_number(look: Look) -> NoReturn:
    """Refuse a look at a number."""
    error = NumberError(look.place.untraceable(KEPT))
    error.place = look.place
    inputs = [name.removeprefix(INPUT) for name in sorted(look.reads) if name.startswith(INPUT)]
    if inputs and len(inputs) == len(look.reads) and not look.random:
        options = " ".join(f"--fix {shell_word(path)}" for path in inputs)
        error.instead = f"; or give {options}, if those numbers are the same in each step"
    raise error


class _StandIn:
    """Stands for what differs from step to step: all that would need its value is refused.

    As text, for messages, it is where it comes from: the number would be a key of the example's.
    """

    __slots__ = ("_look",)

    def __init__(self, look: Look) -> None:
        self._look = look

    def __repr__(self) -> str:
        return self._look.text

    def __format__(self, _spec: str) -> str:
        return self._look.text

    def _refuse(self, *_: object) -> NoReturn:
        refuse_number(self._look)

    __int__ = __float__ = __index__ = __round__ = __trunc__ = __floor__ = __ceil__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = __divmod__ = _refuse

    def __getattr__(self, name: str) -> NoReturn:
        if name[:2] == "__":
            raise AttributeError(name)
        self._refuse()


class Compared(_StandIn):
    """Stands for a tensor's number: comparisons are operations on it, whose results count."""

    __slots__ = ("_tensor",)
    __hash__ = _StandIn._refuse

    def __init__(self, tensor: Tensor, look: Look) -> None:
        super().__init__(look)
        self._tensor = tensor.detach()

    def __bool__(self) -> bool:
        return bool(self._tensor != 0)

    def _compare(self, compare: Callable[[Any, Any], Any], other: object) -> bool:
        """Compare as Python does: whole numbers exactly, others in double precision."""
        own, others = self._tensor, other._tensor if isinstance(other, Compared) else other
        whole = not own.is_floating_point() and not isinstance(other, float)
        if isinstance(others, Tensor):
            whole = whole and not others.is_floating_point()
            others = others.to(torch.int64 if whole else torch.float64)
        elif not isinstance(others, (bool, int, float, torch.SymInt)):
            refuse_number(self._look)
        return bool(compare(own.to(torch.int64 if whole else torch.float64), others))

    def __lt__(self, other: object) -> bool:
        return self._compare(operator.lt, other)

    def __le__(self, other: object) -> bool:
        return self._compare(operator.le, other)

    def __gt__(self, other: object) -> bool:
        return self._compare(operator.gt, other)

    def __ge__(self, other: object) -> bool:
        return self._compare(operator.ge, other)

    def __eq__(self, other: object) -> bool:
        return self._compare(operator.eq, other)

    def __ne__(self, other: object) -> bool:
        return self._compare(operator.ne, other)


class Selected(_StandIn):
    """Stands for `x[mask]`, where it differs from step to step how much that is.

    It may only be asked for its size, and that only be compared: `x[mask].numel() == y.numel()`.
    """

    __slots__ = ("_mask", "_of")
    __hash__ = _StandIn._refuse

    def __init__(self, of: Tensor, mask: Tensor, look: Look) -> None:
        super().__init__(look)
        self._of, self._mask = of, mask.detach()

    __len__ = __bool__ = __iter__ = __getitem__ = __setitem__ = __contains__ = _StandIn._refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _StandIn._refuse
    __invert__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _StandIn._refuse
    __matmul__ = __rmatmul__ = _StandIn._refuse

    @classmethod
    def __torch_function__(
        cls, _function: object, _types: object, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        """Refuse a function of torch that is given one, alone or among others."""
        given = pytree.tree_leaves((args, kwargs))
        next(leaf for leaf in given if isinstance(leaf, cls))._refuse()

    def size(self, dim: int | None = None) -> Any:
        """Return the shape, or the size of a dimension; the first is compared only."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> Compared:
        """Return how many elements a mask selects, as what may be compared."""
        each = math.prod(self._of.shape[self._mask.ndim :])
        return self._compared(self._mask.sum() * each)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Return the shape; its first number may be compared only."""
        return self._compared(self._mask.sum()), *self._of.shape[self._mask.ndim :]

    def _compared(self, number: Tensor) -> Compared:
        return Compared(number, self._look)
