"""What a trace passes by without a word: functions on the way to a view, `.data` set in forward."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from remat_gen.capture.process.libraries import acts_for_user
from remat_gen.capture.process.replaced import replaced
from remat_gen.ir.errors import TraceError


def refuse_functions_of_views(views: Iterable[torch.Tensor]) -> None:
    """Refuse outputs, `views` of what the step was given, that an autograd function made.

    AOTAutograd makes such a view anew from the input, past the function and its backward.
    """
    for view in views:
        node = view.grad_fn
        while node is not None:
            if isinstance(node, BackwardCFunction):
                name = type(node).__name__.removesuffix("Backward")
                raise TraceError(
                    f"forward returns what the autograd function {name} makes of an input or a "
                    "parameter without a copy of it, and its backward would not run: return a "
                    "clone() of that"
                )
            node = next((before for before, _ in node.next_functions if before), None)


@contextlib.contextmanager
def refused_data() -> Iterator[None]:
    """Refuse to set the `.data` of a tensor in a file of the user's: no operation tells of it."""
    descriptor: Any = torch._C.TensorBase.data

    def put(tensor: torch.Tensor, value: torch.Tensor) -> None:
        if acts_for_user(sys._getframe(1)):
            raise TraceError(
                "forward sets the .data of a tensor, which no operation tells of: give what it "
                "makes a name of its own, or write into it by copy_()"
            )
        descriptor.__set__(tensor, value)

    with replaced(torch.Tensor, "data", property(descriptor.__get__, put)):
        yield
