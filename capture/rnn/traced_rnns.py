"""Trace RNNs as operators of ours; step by step, as torch does, where eager would run another way.

Layers are apart, dropout between them, and a GRU's directions, so that a plan can choose for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.rnn.run_whole import TWO_STATES, two_state_gru_cell
from remat_gen.capture.rnn.step_by_step import STEPS, run_steps
from remat_gen.ir.errors import RefusedKernelError

aten, ours = torch.ops.aten, torch.ops.remat
_LAYERS = "gru lstm rnn_tanh rnn_relu".split()
_CELLS = "gru_cell lstm_cell rnn_tanh_cell rnn_relu_cell".split()
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


@dataclass(frozen=True, slots=True)
class _Stack:
    """What torch calls the layers of an RNN with; `plain` is the same in many operations."""

    run: str
    plain: Callable[..., tuple[Tensor, ...]]
    biases: bool
    count: int
    p: float
    train: bool
    bidirectional: bool
    batch_first: bool

    @property
    def drops(self) -> bool:
        """Tell whether there is dropout between the layers."""
        return self.train and self.count > 1 and self.p > 0

    def how(self) -> dict[str, Any]:
        """Return the options of all layers as one operator, but those that are usual."""
        usual = {"layers": 1, "bidirectional": False, "train": True}
        given = {"layers": self.count, "bidirectional": self.bidirectional, "train": self.train}
        return {"kind": self.run} | {k: v for k, v in given.items() if v != usual[k]}

    def in_steps(
        self, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        hx = states if len(states) > 1 else states[0]
        how = self.biases, self.count, self.p, self.train, self.bidirectional, self.batch_first
        return _in_steps(self.plain, x, hx, weights, *how)


def _layers(
    run: str,
    plain: Callable[..., tuple[Tensor, ...]],
    x: Tensor,
    hx: Tensor | Sequence[Tensor],
    weights: Sequence[Tensor],
    *how: Any,
) -> tuple[Tensor, ...]:
    """Run the layers of an RNN as operators: each, or all as one where eager does."""
    stack = _Stack(run, plain, *how)
    states = [hx] if isinstance(hx, Tensor) else list(hx)
    given = (x, *states, *weights)
    projected = len(weights) % (2 * stack.count * (2 if stack.bidirectional else 1)) != 0
    fused = kind_of(x.device).has_fused_rnns
    if fused:
        if stack.drops or not (_may_be_whole(given) and torch.backends.cudnn.enabled):
            _refuse_on_gpu(run)
    elif projected or not _may_be_whole(given) or (run == "lstm" and not is_of_onednn(given)):
        return stack.in_steps(x, states, weights)
    x = x.transpose(0, 1) if stack.batch_first else x
    made, *last = (_together if fused else _one_by_one)(stack, x, states, weights)
    return made.transpose(0, 1) if stack.batch_first else made, *last


def _together(
    stack: _Stack, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Run all layers as one operator, as cuDNN does."""
    plain = replace(stack, batch_first=False).in_steps
    rnn = _kernel("layers", len(states), plain, **stack.how())
    made: tuple[Tensor, ...] = _Whole.apply(rnn, x, *states, *weights)
    return made


def _one_by_one(
    stack: _Stack, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Run each layer, and each direction of it, as an operator."""
    directions, many = 2 if stack.bidirectional else 1, len(weights) // stack.count
    last: list[Sequence[Tensor]] = []
    for i in range(stack.count):
        x = torch.dropout(x, stack.p, stack.train) if i else x
        own = [state[i * directions : (i + 1) * directions].unbind() for state in states]
        of_layer = weights[i * many : (i + 1) * many]
        x, *ends = _directions(partial(_direction, stack.run, stack.plain), x, own, of_layer)
        last.append(ends)
    joined = [ends[0] if len(last) == 1 else torch.cat(ends) for ends in zip(*last, strict=True)]
    return x, *joined


def _refuse_on_gpu(run: str) -> NoReturn:
    """Refuse what eager runs otherwise there than as all layers by cuDNN."""
    raise RefusedKernelError(
        f"an nn.{run.partition('_')[0].upper()} on a GPU with packed sequences, with dropout "
        "between its layers, under autocast or functorch, or without cuDNN: that cannot be planned "
        "yet. Plan the rest of the model in a module of its own, without the RNN"
    )


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
    plain: Any = partial(operator._op_dk, _COMPOSITE)
    states = [hx] if isinstance(hx, Tensor) else list(hx)
    present = [weight for weight in weights if weight is not None]
    if len(present) % 2 or not _may_be_whole((x, *states, *present)):
        return plain(x, hx, *weights)

    name = operator.overloadpacket.__name__
    if name == "gru_cell" and not kind_of(x.device).has_fused_rnns:
        name, plain, states = TWO_STATES, two_state_gru_cell, states * 2

    def in_steps(x: Tensor, states: list[Tensor], weights: list[Tensor]) -> Sequence[Tensor]:
        made = plain(x, states if len(states) > 1 else states[0], *weights)
        return (made,) if isinstance(made, Tensor) else made

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


def _packed(run: str, plain: Callable[..., tuple[Tensor, ...]], x: Tensor, *args: Any) -> Any:
    """Run the layers over sequences of several lengths; step by step.

    Raises:
        RefusedKernelError: cuDNN would run them.
    """
    if kind_of(x.device).has_fused_rnns:
        _refuse_on_gpu(run)
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
