"""What eager runs as one kernel or call: a cell of an RNN, oneDNN's layer of an LSTM, all on a GPU.

As one operator, whose backward runs it again under autograd: forward keeps nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten
_library: Any = torch.library.Library("remat", "FRAGMENT")
_HOW = (
    "bool? reverse=None, str? kind=None, int? layers=None, bool? bidirectional=None, "
    "bool? train=None"
)
_library.define(f"rnn(str run, Tensor x, Tensor[] states, Tensor[] weights, *, {_HOW}) -> Tensor[]")
_library.define(
    "rnn_backward(str run, Tensor?[] gradients, Tensor x, Tensor[] states, Tensor[] weights, "
    f"int[] wanted, *, {_HOW}) -> Tensor[]"
)


def lstm_layer(
    x: Tensor, states: Sequence[Tensor], *weights: Tensor, reverse: bool = False
) -> Sequence[Tensor]:
    """Run one direction of an LSTM's layer over a sequence [T, B, C], as eager does on the CPU."""
    with_biases, (h, c) = len(weights) > 2, states
    biases = weights[2:] if with_biases else map(torch.zeros_like, weights)
    how = 2, h.shape[-1], 1, with_biases, False, False, True  # 2: an LSTM
    kernel = aten.mkldnn_rnn_layer.default
    made, h, c, _ = kernel(x.contiguous(), *weights[:2], *biases, h, c, reverse, [], *how)
    return made, h, c


def all_layers(
    x: Tensor,
    states: Tensor | Sequence[Tensor],
    *weights: Tensor,
    kind: str,
    layers: int = 1,
    bidirectional: bool = False,
    train: bool = True,
) -> Any:
    """Run all layers of an RNN over a sequence [T, B, C], as eager does on a GPU."""
    with_biases = len(weights) > 3 * layers * (2 if bidirectional else 1)
    run = getattr(torch, kind)
    return run(x, states, weights, with_biases, layers, 0.0, train, bidirectional, False)


def two_state_gru_cell(x: Tensor, states: Sequence[Tensor], *weights: Tensor) -> Tensor:
    """Run a GRU's cell as eager does on the CPU, of a state that is given to each of its readers.

    Each has a gradient of its own so: eager adds them one by one to what else comes into the state.
    """
    (mixed, h), (of_x, of_h, *biases) = states, weights
    gates = F.linear(x, of_x, *biases[:1]).unsafe_chunk(3, 1)
    own = F.linear(h, of_h, *biases[1:]).unsafe_chunk(3, 1)
    reset, update = own[0].add_(gates[0]).sigmoid_(), own[1].add_(gates[1]).sigmoid_()
    new = gates[2].add(own[2].mul_(reset)).tanh_()
    return (mixed - new).mul_(update).add_(new)


def run_rnn(
    run: Any,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    **how: Any,
) -> Sequence[Tensor]:
    """Run a cell or layer of an RNN; return all that it makes, without a graph of it."""
    x, *given = (t.detach() for t in (x, *states, *weights))
    count = len(states)
    with torch.enable_grad():  # oneDNN rounds otherwise where no gradients are asked for
        made = run(x, given[:count] if count > 1 else given[0], *given[count:], **how)
    return (made,) if torch.is_tensor(made) else made


def rnn_backward(
    run: Any,
    gradients: Sequence[Tensor | None],
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    wanted: Sequence[int],
    **how: Any,
) -> Sequence[Tensor]:
    """Return the `wanted` gradients of input, states and weights: it runs again for them."""
    given = [t.detach().requires_grad_(i in wanted) for i, t in enumerate((x, *states, *weights))]
    count = 1 + len(states)
    with torch.enable_grad():
        made = run(given[0], given[1:count] if count > 2 else given[1], *given[count:], **how)
    made = (made,) if torch.is_tensor(made) else made
    ends = [m for m, d in zip(made, gradients, strict=True) if d is not None]
    came = [d for d in gradients if d is not None]
    return torch.autograd.grad(ends, [given[i] for i in wanted], came)


TWO_STATES = two_state_gru_cell.__name__
RUNS: dict[str, Any] = {
    "lstm": lstm_layer,
    "layers": all_layers,
    TWO_STATES: two_state_gru_cell,
    **{
        name: getattr(torch, name)
        for name in "gru_cell lstm_cell rnn_tanh_cell rnn_relu_cell".split()
    },
}


def _run(run: str, *args: Any, **how: Any) -> list[Tensor]:
    return list(run_rnn(RUNS[run], *args, **_given(how)))


def _run_backward(run: str, *args: Any, **how: Any) -> list[Tensor]:
    return list(rnn_backward(RUNS[run], *args, **_given(how)))


def _given(how: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in how.items() if value is not None}


def _fake(
    run: str, x: Tensor, states: Sequence[Tensor], _weights: Sequence[Tensor], **how: Any
) -> list[Tensor]:
    last = [x.new_empty(state.shape) for state in states[: 1 if run == TWO_STATES else None]]
    if run not in ("lstm", "layers"):
        return last
    size = states[0].shape[-1] * (2 if how.get("bidirectional") else 1)
    return [x.new_empty(*x.shape[:-1], size), *last]


def _fake_backward(
    _run: str,
    _gradients: Sequence[Tensor | None],
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    wanted: Sequence[int],
    **_how: Any,
) -> list[Tensor]:
    given = (x, *states, *weights)
    return [given[i].new_empty(given[i].shape) for i in wanted]


OPERATORS = {"remat.rnn.default": _run, "remat.rnn_backward.default": _run_backward}
_library.impl("rnn", _run, "CompositeExplicitAutograd")
_library.impl("rnn_backward", _run_backward, "CompositeExplicitAutograd")
torch.library.register_fake("remat::rnn", _fake, lib=_library)
torch.library.register_fake("remat::rnn_backward", _fake_backward, lib=_library)
