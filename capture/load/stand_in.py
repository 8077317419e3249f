"""Tensors without values on the CPU that stand for those of a GPU which is not here.

torch makes fake tensors on "cuda" without a GPU, but cannot differentiate them there: the autograd
engine asks the device for its streams (docs/findings/gpu.md). So a model is traced on the CPU with
the kernels of a GPU (`kernels.py`), and what was traced is then said to be on the GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.load.arguments import Call
from remat_gen.capture.process.replaced import replaced
from remat_gen.ir.errors import TraceError, UsageError
from remat_gen.ir.graph import Graph, Kind, Literal, Operation, Storage, View

Called = TypeVar("Called", Operation, View)


def refuse_elsewhere(tensors: Iterable[torch.Tensor], where: str) -> None:
    """Refuse tensors that the user's code put on a device by itself."""
    for tensor in tensors:
        if tensor.device.type != "cpu":
            raise UsageError(
                f"{where}: makes a tensor on {tensor.device} itself, and there is none here: leave "
                "out device=, the model and its inputs are moved to the device where there is one"
            )


@contextlib.contextmanager
def refused_autocast(where: str, stands_for: AbsentDevice | None) -> Iterator[None]:
    """Refuse autocast on tensors that stand for a GPU's: what is cast differs from the CPU's.

    torch ignores autocast for "cuda" where there is none, with a warning that nobody sees.

    Raises:
        TraceError: it was asked for; the message has no line, as it may be a library's.
    """
    asked: list[object] = []
    begin = torch.autocast.__init__

    def noted(
        self: torch.autocast,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        asked.extend([device_type] * enabled)
        begin(self, device_type, dtype, enabled, cache_enabled)

    with replaced(torch.autocast, "__init__", noted):
        yield
    if asked and stands_for:
        raise TraceError(
            f"{where}: autocast for a GPU cannot be traced where none is: build the model in 16 "
            "bits (model.to(torch.bfloat16)), or plan on the GPU (--device cuda)"
        )


def say_on_gpu(model: nn.Module, call: Call, stands_for: AbsentDevice) -> None:
    """Let a model that was traced, and its example, say that they are on that GPU.

    What is written of them into the generated module is compared with the real ones.
    """
    for tensor in (*model.parameters(), *model.buffers(), *(leaf.value for leaf in call.leaves)):
        if isinstance(tensor, FakeTensor):
            tensor.fake_device = torch.device(_first(stands_for.kind))


def on_gpu(graph: Graph, stands_for: AbsentDevice) -> Graph:
    """Return a graph that was traced on the CPU as one of a GPU: devices and generator states."""
    states, there = {o.state for o in graph.operations if o.state}, _first(stands_for.kind)
    nbytes = kind_of(stands_for.kind).rng_state_bytes
    return replace(
        graph,
        operations=tuple(_moved(operation, there) for operation in graph.operations),
        views=tuple(_moved(view, there) for view in graph.views),
        tensors={
            n: replace(t, shape=(nbytes,))  # a generator's state; it is kept on the CPU
            if n in states
            else replace(t, device=there)
            if t.device == "cpu"
            else t
            for n, t in graph.tensors.items()
        },
        storages={
            n: Storage(n, nbytes, Kind.ACTIVATION) if n in states else s
            for n, s in graph.storages.items()
        },
    )


def _first(kind: str) -> str:
    return f"{kind}:0"


def _moved(call: Called, there: str) -> Called:
    said = {Literal("device", "cpu"): Literal("device", there)}
    args, kwargs = pytree.tree_map_only(
        Literal, lambda literal: said.get(literal, literal), (call.args, call.kwargs)
    )
    return replace(call, args=args, kwargs=kwargs)
