"""Numbers of tensors that may be compared, and nothing else: `if loss.item() > 100: raise`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from remat_gen.ir.errors import TraceError
from remat_gen.ir.graph import Source

KEPT = (
    "a tensor becomes a Python number (.item(), int()), and it is another one in each step: keep "
    "it a tensor"
)


class NumberError(TraceError):
    """A tensor's number decides what runs, and it is another one in the next step."""


def refuse_number(source: Source) -> NoReturn:
    """Refuse a look at a number, with the line it stands in.

    Raises:
        NumberError: always.
    """
    raise NumberError(refused(source, KEPT))


def refused(source: Source, reason: str) -> str:
    """Return what the user is told of a look."""
    where = f"{source.file}:{source.line}: " if source.file else ""
    return f"{where}the model cannot be traced: {reason}"


class Compared:
    """Stands for a tensor's number: comparisons are operations on the tensor, whose results count.

    It has the example's number for messages alone.
    """

    __slots__ = ("_number", "_source", "_tensor")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tensor: Tensor, number: float, source: Source) -> None:
        self._tensor, self._number, self._source = tensor.detach(), number, source

    def __repr__(self) -> str:
        return repr(self._number)

    def __format__(self, spec: str) -> str:
        return format(self._number, spec)

    def __bool__(self) -> bool:
        return bool(self._tensor != 0)

    def _compare(self, compare: Callable[[Any, Any], Any], other: object) -> bool:
        """Compare as Python does: whole numbers exactly, others in double precision."""
        own, others = self._tensor, other._tensor if isinstance(other, Compared) else other
        whole = not own.is_floating_point() and not isinstance(other, float)
        if isinstance(others, Tensor):
            whole = whole and not others.is_floating_point()
            others = others.to(torch.int64 if whole else torch.float64)
        elif not isinstance(others, (bool, int, float)):
            refuse_number(self._source)
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

    def _refuse(self, *_: object) -> NoReturn:
        refuse_number(self._source)

    __int__ = __float__ = __index__ = __round__ = __trunc__ = __floor__ = __ceil__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = __divmod__ = __getattr__ = _refuse
