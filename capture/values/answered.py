"""Answer the looks of a forward that runs without values, as a real run found them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from remat_gen.capture.values.compared import Selected, refuse_number
from remat_gen.capture.values.looking import Looking, Sized, positions
from remat_gen.capture.values.looks import Answer, Kind, Look, Numbers
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
            refuse_number(look)
        if look.answer is Answer.CHECKED:
            self.checks.append((torch.ops.aten.clone.default(tensor), look))
        self.last = look
        return look.value

    def whole(self, tensor: Tensor, read: Callable[[], Any]) -> Any:
        """Return what the real run found."""
        look = self._look(Kind.WHOLE)
        return read() if look is None else copy.deepcopy(look.value)

    def made(self, make: Callable[[], Any], sized: Sized | None) -> Any:
        """Return what the real run found: made anew where its size is enough, or a constant."""
        look = self._look(Kind.SHAPE)
        if look is None:
            return make()
        if sized is not None:
            return sized(look.value.shape[0])
        return pytree.tree_map_only(Numbers, Numbers.again, look.value)

    def text(self, tensor: Tensor, write: Callable[[], str]) -> str:
        """Return the text of the real run, or of where a tensor's numbers come from."""
        look = self._look(Kind.TEXT)
        if look is None:
            return write()
        return look.text if look.is_compared else str(look.value)

    def selected(self, tensor: Tensor, mask: Tensor) -> Any:
        """Return what the mask of the real run selects, or how much it is in each step."""
        look = self._look(Kind.SELECT)
        if look is None:
            return Tensor.__getitem__(tensor, mask)
        if look.answer is Answer.COMPARED:
            return Selected(tensor, mask, look)
        return Tensor.__getitem__(tensor, positions(mask, len(look.value)).unbind(1))

    def picked(self, index: Tensor, pick: Callable[[], Tensor]) -> Tensor | None:
        """Pick what the real run picked by a tensor's number."""
        return None if self._look(Kind.PICK) is None else pick()

    def _look(self, kind: Kind) -> Look | None:
        key, _, _ = self.places.next(kind)
        return self._looks.found.get(key)
