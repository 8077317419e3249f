"""LSTMs as eager runs them on the CPU, on tensors without values, where torch has them in steps.

What oneDNN's kernel keeps for backward, and needs inside, only the kernel tells: it runs on zeros.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decompositions
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from remat_gen.capture.as_eager.dropout import dropout_of_rnns
from remat_gen.capture.process.replaced import replaced
from remat_gen.capture.profile.memory_of_fakes import Call, call_of
from remat_gen.capture.profile.workspace import inside_bytes
from remat_gen.capture.rnn.traced_rnns import is_of_onednn

_FORWARD = torch.ops.aten.mkldnn_rnn_layer.default
_BACKWARD = torch.ops.aten.mkldnn_rnn_layer_backward.default
_TENSORS = 7  # input, weights and states: what both begin with
# where the others of forward stand among the arguments of backward
_OTHERS = (13, 20, 14, 15, 16, 17, 19, 21)


@contextlib.contextmanager
def fused_lstms(workspace: dict[Call, int]) -> Iterator[None]:
    """Let nn.LSTM call the kernel where eager does; `workspace` gets to know what it needs."""
    plain = torch._VF.lstm
    dispatch: Callable[..., Any] = FakeTensorMode.dispatch

    def lstm(x: Tensor, *args: Any) -> Any:
        return (_contiguous if _is_fused(x, *args[:2]) else plain)(x, *args)

    def watched(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = dispatch(mode, func, types, args, kwargs)
        if func not in (_FORWARD, _BACKWARD):
            return result
        kept, workspace[call_of(func, (args, kwargs))] = _needed(func, args)
        with mode:
            last = [torch.empty(kept, dtype=torch.uint8)] if func is _FORWARD else [result[-1]]
            return *result[:-1], *last

    def layer(*_: object) -> object:
        return decompositions.mkldnn_one_layer_lstm

    with (
        dropout_of_rnns(),
        replaced(torch._VF, "lstm", lstm),
        replaced(decompositions, "select_one_layer_lstm_function", layer),
        replaced(FakeTensorMode, "dispatch", watched),
    ):
        yield


def _contiguous(x: Tensor, *args: Any) -> Any:
    """Run an LSTM whose input is made contiguous once, for all directions."""
    *others, batch_first = args
    x = (x.transpose(0, 1) if batch_first else x).contiguous()
    run: Callable[..., Any] = decompositions.lstm_impl
    made, *states = run(x, *others, False)
    return made.transpose(0, 1) if batch_first else made, *states


def _is_fused(x: Tensor, states: object, weights: object) -> bool:
    """Tell whether eager calls the kernel: not of packed sequences here, nor of projections."""
    if not isinstance(states, Sequence) or not isinstance(weights, Sequence):
        return False
    whole = states[0].shape[-1] == states[1].shape[-1]
    return whole and is_of_onednn((x, *states, *weights))


def _needed(func: Any, args: Sequence[Any]) -> tuple[int, int]:
    """Run the kernel on zeros; return the bytes that it keeps for backward, and needs inside."""
    with _disable_current_modes(), torch.enable_grad():  # else it keeps nothing
        zeros = pytree.tree_map_only(Tensor, _zeros_like, args)
        given = (*zeros[:-1], True)  # training
        if func is _BACKWARD:
            others = (zeros[i] for i in _OTHERS)
            filled = _FORWARD(*zeros[:_TENSORS], *others, True)[-1]
            given = (*zeros[:18], True, *zeros[19:-1], filled)
        made = [tensor for tensor in func(*given) if tensor is not None]
        inside = inside_bytes({"": lambda: lambda: func(*given)}, torch.device("cpu"))[""]
        storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in made}
        return made[-1].nbytes, inside - sum(storages.values())


def _zeros_like(fake: Tensor) -> Tensor:
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype).zero_()
