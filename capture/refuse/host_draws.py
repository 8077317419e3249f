"""Numbers that are drawn on the host, in a model that is planned for a GPU which is not here.

There all tensors are the CPU's. In one run without values, those of the model and its inputs are
said to be on `cpu:0`, which stands for the GPU: what the user makes without `device=` is on `cpu`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from remat_gen.capture.process.operands import tensors_in
from remat_gen.capture.refuse.places import present_place
from remat_gen.ir.errors import TraceError, said

_THERE, _HOST = torch.device("cpu", 0), torch.device("cpu")
# "Expected all tensors to be …", of a fake tensor; before torch 2.13 "Unhandled …"
_MIXED = ("on the same device, but found", "found two different devices")
_ACTION = "pass device=, as in torch.rand(n, device=x.device)"


class HostDraws(TorchDispatchMode):
    """Refuses to draw random numbers into a tensor of the host."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation; look where what it drew is."""
        made = func(*args, **(kwargs or {}))
        draws = torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
        if draws and any(tensor.device == _HOST for tensor in tensors_in(made)):
            name = func.overloadpacket.__name__.rstrip("_")
            raise TraceError(
                f"{present_place()}: {name} draws on the host, with the host's generator, and a "
                f"step that is planned for a GPU would draw there: {_ACTION}"
            )
        return made


@contextmanager
def told_apart(tensors: Iterable[object]) -> Iterator[HostDraws]:
    """Say that tensors without values are on a GPU; yield what refuses draws that are not.

    A run that has tensors of both in one operation ends there: eager on a GPU fails too.

    Raises:
        TraceError: a number is drawn on the host, or the run fails and does not tell.
    """
    moved = [(t, t.fake_device) for t in tensors if isinstance(t, FakeTensor)]
    for tensor, _ in moved:
        tensor.fake_device = _THERE
    try:
        yield HostDraws()  # type: ignore[no-untyped-call]
    except TraceError:
        raise
    except Exception as error:  # of the user's own code, which takes the device for another one
        if not any(words in said(error) for words in _MIXED):
            reason = f"whether forward draws on the host cannot be told: {said(error)}"
            raise TraceError(f"{reason}; plan on the GPU") from error
    finally:
        for tensor, before in moved:
            tensor.fake_device = before
