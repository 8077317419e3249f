"""Trace RNNs as operators of ours; step by step, as torch does, where eager would run another way.

Layers are apart, dropout between them, and a GRU's directions, so that a plan can choose for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.rnn import run_whole as _run_whole  # noqa: F401  registers them
from remat_gen.capture.rnn.step_by_step import STEPS, run_steps
from remat_gen.ir.errors import RefusedKernelError

aten, ours = torch.ops.aten, torch.ops.remat
_LAYERS = "gru lstm rnn_tanh rnn_relu".split()
_CELLS = "gru_cell lstm_cell rnn_tanh_cell rnn_relu_cell".split()
_CLASSES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}
_OF_CUDNN = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_OTHERWISE = "under autocast or functorch, without cuDNN, or with dropout between its layers"
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


@dataclass(frozen=True, slots=True)
class _Rnn:
    """An operator, its backward, and what it does as many operations.

    Each is called with input, states and weights; `backward` with the gradients of the results, the
    first result, and which gradients are wanted before these.
    """

    forward: Callable[..., Sequence[Tensor]]
    backward: Callable[..., Sequence[Tensor]]
    in_steps: Callable[..., Sequence[Tensor]]


def _loop(run: str, **how: bool) -> _Rnn:
    """Return one direction of a layer of steps."""

    def forward(x: Tensor, state: Tensor, *weights: Tensor) -> Any:
        return ours.rnn_steps(run, x, state, weights, **how)

    def backward(
        gradients: Sequence[Tensor | None],
        made: Tensor,
        wanted: Sequence[int],
        x: Tensor,
        state: Tensor,
        *weights: Tensor,
    ) -> Any:
        read = x, state, made, weights, wanted
        return ours.rnn_steps_backward(run, *gradients, *read, **how)

    def in_steps(x: Tensor, state: Tensor, *weights: Tensor) -> Sequence[Tensor]:
        return run_steps(STEPS[run], x, state, weights, **how)

    return _Rnn(forward, backward, in_steps)


def _kernel(run: str, count: int, plain: Callable[..., Any], **how: Any) -> _Rnn:
    """Return what is one call; `plain` is the same in many operations."""

    def forward(x: Tensor, *rest: Tensor) -> Any:
        return ours.rnn(run, x, rest[:count], rest[count:], **how)

    def backward(
        gradients: Sequence[Tensor | None],
        _made: Tensor,
        wanted: Sequence[int],
        x: Tensor,
        *rest: Tensor,
    ) -> Any:
        return ours.rnn_backward(run, gradients, x, rest[:count], rest[count:], wanted, **how)

    def in_steps(x: Tensor, *rest: Tensor) -> Any:
        return plain(x, rest[:count], rest[count:])

    return _Rnn(forward, backward, in_steps)


class _Whole(torch.autograd.Function):
    """Shows autograd an operator and its backward."""

    apply: Any  # torch's has no types

    @staticmethod
    def forward(ctx: Any, rnn: _Rnn, *given: Tensor) -> tuple[Tensor, ...]:
        made = tuple(rnn.forward(*given))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*given, made[0])
        ctx.rnn = rnn
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        *given, made = ctx.saved_tensors
        wanted = [i for i in range(len(given)) if ctx.needs_input_grad[1 + i]]
        if torch.is_grad_enabled():  # of a gradient that is differentiated once more
            pairs = zip(ctx.rnn.in_steps(*given), gradients, strict=True)
            ends, came = zip(*((m, d) for m, d in pairs if d is not None), strict=True)
            leaves = [given[i] for i in wanted]
            found = torch.autograd.grad(ends, leaves, came, create_graph=True)
        else:
            found = ctx.rnn.backward(gradients, made, wanted, *given)
        by_place = dict(zip(wanted, found, strict=True))
        return None, *map(by_place.get, range(len(given)))


def _layers(
    run: str,
    plain: Callable[..., tuple[Tensor, ...]],
    x: Tensor,
    hx: Tensor | Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: bool,
    count: int,
    p: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """Run the layers of an RNN one after another, each as an operator."""
    states = [hx] if isinstance(hx, Tensor) else list(hx)
    directions, many = 2 if bidirectional else 1, len(weights) // count
    projected = many not in (2 * directions, 4 * directions)
    given = (x, *states, *weights)
    if kind_of(x.device).has_fused_rnns:
        layers = biases, count, p, train, bidirectional, batch_first
        return _on_gpu(run, plain, x, states, weights, *layers)
    if projected or not _may_be_whole(given) or (run == "lstm" and not is_of_onednn(given)):
        how = count, p, train, bidirectional, batch_first
        return _in_steps(plain, x, hx, weights, biases, *how)
    x = x.transpose(0, 1) if batch_first else x
    last: list[Sequence[Tensor]] = []
    for i in range(count):
        x = torch.dropout(x, p, train) if i else x
        own = [state[i * directions : (i + 1) * directions].unbind() for state in states]
        of_layer = weights[i * many : (i + 1) * many]
        x, *ends = _directions(partial(_direction, run, plain), x, own, of_layer)
        last.append(ends)
    joined = [ends[0] if count == 1 else torch.cat(ends) for ends in zip(*last, strict=True)]
    return x.transpose(0, 1) if batch_first else x, *joined


def _on_gpu(
    run: str,
    plain: Callable[..., tuple[Tensor, ...]],
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: bool,
    count: int,
    p: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """Run all layers as one operator, as cuDNN does.

    Raises:
        RefusedKernelError: eager runs what is not that operator's.
    """
    dropped = p and train and count > 1  # by numbers that cuDNN keeps to itself
    if dropped or not (_may_be_whole((x, *states, *weights)) and _is_of_cudnn(x)):
        raise RefusedKernelError(
            f"an nn.{_CLASSES[run]} on a GPU, {_OTHERWISE}: that cannot be planned yet. Plan the "
            "rest of the model in a module of its own, without the RNN"
        )

    def in_steps(x: Tensor, states: list[Tensor], weights: list[Tensor]) -> tuple[Tensor, ...]:
        hx = states if len(states) > 1 else states[0]
        return plain(x, hx, weights, biases, count, 0.0, train, bidirectional, False)

    how: dict[str, Any] = {"kind": run}
    how |= {"layers": count} if count > 1 else {}
    how |= {"bidirectional": True} if bidirectional else {}
    how |= {} if train else {"train": False}
    rnn = _kernel("layers", len(states), in_steps, **how)
    x = x.transpose(0, 1) if batch_first else x
    made, *last = _Whole.apply(rnn, x, *states, *weights)
    return made.transpose(0, 1) if batch_first else made, *last


def _directions(
    direction: Callable[[int, bool], _Rnn],
    x: Tensor,
    states: Sequence[Sequence[Tensor]],
    weights: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """Run both directions of a layer, or its only one."""
    many = len(weights) // len(states[0])
    found = []
    for i, own in enumerate(zip(*states, strict=True)):
        rnn = direction(many, bool(i))
        found.append(_Whole.apply(rnn, x, *own, *weights[i * many : (i + 1) * many]))
    made, *last = zip(*found, strict=True)
    return made[0] if len(made) == 1 else torch.cat(made, dim=-1), *map(torch.stack, last)


def _direction(
    run: str, plain: Callable[..., tuple[Tensor, ...]], many: int, reverse: bool
) -> _Rnn:
    """Return a direction of a layer of `many` weights."""

    def of_lstm(x: Tensor, states: list[Tensor], weights: list[Tensor]) -> tuple[Tensor, ...]:
        x = x.flip(0) if reverse else x
        states = [state[None] for state in states]
        how = many > 2, 1, 0.0, True, False, False
        made, *last = _in_steps(plain, x, states, weights, *how)
        return made.flip(0) if reverse else made, *(state[0] for state in last)

    how = {"reverse": True} if reverse else {}
    return _kernel(run, 2, of_lstm, **how) if run == "lstm" else _loop(run, **how)


def _in_steps(plain: Callable[..., tuple[Tensor, ...]], *args: Any) -> tuple[Tensor, ...]:
    """Run torch's own way; without oneDNN, whose kernel for inference it would take."""
    with torch.backends.mkldnn.flags(enabled=False):
        return plain(*args)


def _cell(operator: Any, x: Tensor, hx: Tensor | Sequence[Tensor], *weights: Tensor | None) -> Any:
    """Run a cell as an operator."""
    plain = partial(operator._op_dk, _COMPOSITE)
    states = [hx] if isinstance(hx, Tensor) else list(hx)
    present = [weight for weight in weights if weight is not None]
    if len(present) % 2 or not _may_be_whole((x, *states, *present)):
        return plain(x, hx, *weights)

    def in_steps(x: Tensor, states: list[Tensor], weights: list[Tensor]) -> Sequence[Tensor]:
        made = plain(x, states if len(states) > 1 else states[0], *weights)
        return (made,) if isinstance(made, Tensor) else made

    name = operator.overloadpacket.__name__
    made = _Whole.apply(_kernel(name, len(states), in_steps), x, *states, *present)
    return made[0] if isinstance(hx, Tensor) else made


def _may_be_whole(tensors: Sequence[Tensor]) -> bool:
    """Tell whether the operator is what eager runs: autocast and functorch look inside."""
    return not (
        torch.is_autocast_enabled(tensors[0].device.type)
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def is_of_onednn(tensors: Sequence[Tensor]) -> bool:
    """Tell whether eager runs an LSTM's layers by oneDNN."""
    onednn = torch.backends.mkldnn
    plain = all(t.dtype is torch.float32 and t.device.type == "cpu" for t in tensors)
    return plain and onednn.is_available() and bool(onednn.enabled)


def _is_of_cudnn(x: Tensor) -> bool:
    """Tell whether eager runs all layers by cuDNN, as far as that is to be known here."""
    return bool(torch.backends.cudnn.enabled) and x.dtype in _OF_CUDNN


def _packed(run: str, plain: Callable[..., tuple[Tensor, ...]], x: Tensor, *args: Any) -> Any:
    """Run the layers over sequences of several lengths; step by step.

    Raises:
        RefusedKernelError: cuDNN would run them.
    """
    if kind_of(x.device).has_fused_rnns:
        raise RefusedKernelError(
            f"an nn.{_CLASSES[run]} on a GPU, with packed sequences: that cannot be planned yet. "
            "Plan the rest of the model in a module of its own, without the RNN"
        )
    return plain(x, *args)


def kernels() -> dict[Any, Callable[..., Any]]:
    """Return what is traced for each of torch's operators."""
    found: dict[Any, Callable[..., Any]] = {}
    for name in _LAYERS:
        padded, packed = getattr(aten, name).input, getattr(aten, name).data
        found[padded] = partial(_layers, name, padded.py_kernels[_COMPOSITE])
        found[packed] = partial(_packed, name, packed.py_kernels[_COMPOSITE])
    for name in _CELLS:
        packet = getattr(aten, name)
        found |= {
            cell: partial(_cell, cell) for cell in (getattr(packet, o) for o in packet.overloads())
        }
    return found
