"""Answer the looks of a forward that runs without values, as a real run found them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from remat_gen.capture.values.compared import refuse_number
from remat_gen.capture.values.looking import Looking
from remat_gen.capture.values.looks import Answer, Kind, Look
from remat_gen.capture.values.recorded import Looks


class Answering(Looking):
    """Answers looks; `checks` are the tensors that each step compares, and the looks at them."""

    def __init__(self, looks: Looks) -> None:
        super().__init__()
        self._looks = looks
        self.checks: list[tuple[Tensor, Look]] = []

    def scalar(self, tensor: Tensor, operator: Callable[..., Any]) -> Any:
        """Return what the real run found; keep a copy of what is to be compared."""
        look = self._look(self.kind_of(tensor))
        if look is None:
            return operator(tensor)  # raises as it would without any answers
        if look.answer is Answer.COMPARED and look.kind is not Kind.ITEM:
            refuse_number(look.source)
        if look.answer is Answer.CHECKED:
            self.checks.append((torch.ops.aten.clone.default(tensor), look))
        self.last = look
        return look.value

    def whole(self, tensor: Tensor, read: Callable[[], Any]) -> Any:
        """Return what the real run found."""
        look = self._look(Kind.WHOLE)
        return read() if look is None else copy.deepcopy(look.value)

    def made(self, make: Callable[[], Tensor]) -> Tensor:
        """Return what the real run found, as a constant."""
        look = self._look(Kind.SHAPE)
        if look is None:
            return make()
        numbers, dtype, device, shape = look.value
        return torch.tensor(numbers, dtype=dtype, device=device).view(shape)

    def picked(self, index: Tensor, pick: Callable[[], Tensor]) -> Tensor | None:
        """Pick what the real run picked by a tensor's number."""
        return None if self._look(Kind.PICK) is None else pick()

    def _look(self, kind: Kind) -> Look | None:
        key, _ = self.places.next(kind)
        return self._looks.found.get(key)
