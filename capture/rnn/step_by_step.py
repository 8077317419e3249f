"""A direction of a GRU's or plain RNN's layer as one operator, which goes back step by step.

torch's loop over the steps keeps some eight values of a GRU in each of them. Backward here runs a
step again when it comes to it, from the state before it, which is the layer's own result: what
lives at once is one step, and what the layer makes of its input. The arithmetic is torch's, in the
order of its engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_library: Any = torch.library.Library("remat", "FRAGMENT")
_library.define(
    "rnn_steps(str step, Tensor x, Tensor state, Tensor[] weights, *, "
    "bool? reverse=None) -> (Tensor, Tensor)"
)
_library.define(
    "rnn_steps_backward(str step, Tensor? d_made, Tensor? d_last, Tensor x, Tensor state, "
    "Tensor made, Tensor[] weights, int[] wanted, *, bool? reverse=None) -> Tensor[]"
)


def gru_step(gates: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a GRU's next state; `gates` is what it makes of the step's input."""
    of_x, of_h = gates.unsafe_chunk(3, 1), F.linear(h, weight, bias).unsafe_chunk(3, 1)
    reset, update = of_h[0].add_(of_x[0]).sigmoid_(), of_h[1].add_(of_x[1]).sigmoid_()
    new = of_x[2].add(of_h[2].mul_(reset)).tanh_()
    return (h - new).mul_(update).add_(new)


def tanh_step(gates: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a plain RNN's next state; `gates` is what it makes of the step's input."""
    return torch.tanh(F.linear(h, weight, bias).add_(gates))


def relu_step(gates: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a plain RNN's next state; `gates` is what it makes of the step's input."""
    return torch.relu(F.linear(h, weight, bias).add_(gates))


def run_steps(
    step: Any, x: Tensor, state: Tensor, weights: Sequence[Tensor], reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """Run a layer of an RNN over a sequence [T, B, C]; return all states, and the last."""
    gates = F.linear(x, *weights[::2])
    made = x.new_empty(*x.shape[:2], state.shape[-1])
    for t in range(len(x))[:: -1 if reverse else 1]:
        state = step(gates[t], state, *weights[1::2])
        made[t] = state
    return made, state


def steps_backward(
    step: Any,
    d_made: Tensor | None,
    d_last: Tensor | None,
    x: Tensor,
    state: Tensor,
    made: Tensor,
    weights: Sequence[Tensor],
    wanted: Sequence[int],
    reverse: bool = False,
) -> list[Tensor]:
    """Return the `wanted` gradients of input, state and weights; each step runs again for them."""
    x, state, *weights = (t.detach().requires_grad_() for t in (x, state, *weights))
    of_x, own = weights[::2], weights[1::2]
    x.requires_grad_(0 in wanted)
    with torch.enable_grad():
        gates = F.linear(x, *of_x)
    d_gates = gates.detach()  # a step's take the place of what it has read
    d_own: list[Tensor] = []
    order = list(range(len(x)))[:: 1 if reverse else -1]  # the last step first
    d_h: Any = d_last
    if d_made is not None:
        d_h = d_made[order[0]] if d_last is None else d_last + d_made[order[0]]
    for t, before in zip(order, [*order[1:], -1], strict=True):
        h, came = state, [d_h]
        if before >= 0:  # a copy: kernels round by where a tensor begins
            h = made[before].clone().requires_grad_()
        with torch.enable_grad():
            read = gates[t].detach().requires_grad_()
            ends = [step(read, h, *own)]
            if before >= 0 and d_made is not None:
                ends.append(h.view_as(h))  # autograd adds what comes through this first
                came.append(d_made[before])
        d_gates[t], d_h, *d_now = torch.autograd.grad(ends, [read, h, *own], came)
        d_own = [d.add_(now) for d, now in zip(d_own, d_now, strict=False)] or d_now
    leaves = [x, *of_x] if 0 in wanted else of_x
    d_leaves = torch.autograd.grad(gates, leaves, d_gates)
    d_weights = [d for pair in zip(d_leaves[-len(of_x) :], d_own, strict=True) for d in pair]
    found = [d_leaves[0], d_h, *d_weights]
    return [found[i] for i in wanted]


STEPS: dict[str, Any] = {"gru": gru_step, "rnn_tanh": tanh_step, "rnn_relu": relu_step}
"""What torch calls a layer of such steps."""


def _run(step: str, *args: Any, **how: Any) -> tuple[Tensor, Tensor]:
    return run_steps(STEPS[step], *args, **how)


def _run_backward(step: str, *args: Any, **how: Any) -> list[Tensor]:
    return steps_backward(STEPS[step], *args, **how)


def _fake(
    _step: str, x: Tensor, state: Tensor, _weights: Sequence[Tensor], **_how: Any
) -> tuple[Tensor, Tensor]:
    return x.new_empty(*x.shape[:2], state.shape[-1]), x.new_empty(state.shape)


def _fake_backward(
    _step: str,
    _d_made: Tensor | None,
    _d_last: Tensor | None,
    x: Tensor,
    state: Tensor,
    _made: Tensor,
    weights: Sequence[Tensor],
    wanted: Sequence[int],
    **_how: Any,
) -> list[Tensor]:
    given = (x, state, *weights)
    return [given[i].new_empty(given[i].shape) for i in wanted]


OPERATORS = {"remat.rnn_steps.default": _run, "remat.rnn_steps_backward.default": _run_backward}
_library.impl("rnn_steps", _run, "CompositeExplicitAutograd")
_library.impl("rnn_steps_backward", _run_backward, "CompositeExplicitAutograd")
torch.library.register_fake("remat::rnn_steps", _fake, lib=_library)
torch.library.register_fake("remat::rnn_steps_backward", _fake_backward, lib=_library)
