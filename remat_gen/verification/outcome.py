"""Everything that a training step leaves behind, copied so that it can be compared."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.utils import _pytree as pytree

from remat_gen.capture.device.kinds import KINDS
from remat_gen.capture.values.holding import first_step_undone, held_as_before
from remat_gen.capture.values.kept_places import held_on
from remat_gen.capture.values.written import is_literal
from remat_gen.ir.errors import TraceError
from remat_gen.verification.peak import PeakMeasurement, watched_peak
from remat_gen.verification.step import clear_gradients, leaves_of, structure_of, training_step

# (kind, name) of each thing, in an order that does not depend on the model's code.
Outcome: TypeAlias = Mapping[tuple[str, str], object]
EVALUATION = "evaluation"  # the kind of what a model returns in that mode
BEHIND = "step behind an evaluation"
_CHANGE = 1 + 2**-10
ATTRIBUTES = "attributes"  # tensors and plain values that forward has put on the model
HELD = "held"  # all plain values that are there: the step before may have put the same


@dataclass(frozen=True, slots=True)
class State:
    """Copies of all parameters and buffers, the non-persistent ones included, by name.

    A first step fills the buffers that are `filled`.
    """

    tensors: Mapping[str, torch.Tensor]
    filled: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: nn.Module, filled: Sequence[str] = ()) -> State:
        """Copy the state of a model to the CPU."""
        tensors = {name: _copy(tensor) for name, tensor in _state(model).items()}
        return cls(tensors, tuple(filled))

    def nudged(self, model: nn.Module) -> State:
        """Return the same state with a model's parameters moved up to the next number."""
        moved = dict(self.tensors)
        for name, _ in model.named_parameters(remove_duplicate=False):
            tensor = moved[name]
            if tensor.is_floating_point() and tensor.dtype.itemsize > 2:  # others have no kernels
                moved[name] = torch.nextafter(tensor, tensor.new_tensor(torch.inf))
        return State(moved, self.filled)

    def restore(self, model: nn.Module) -> None:
        """Write the state into a model that has the same names.

        Raises:
            ValueError: the model has other parameters or buffers, or other shapes.
        """
        target = _state(model)
        if unequal := sorted(target.keys() ^ self.tensors.keys()):
            raise ValueError(f"only one of the models has {', '.join(unequal)}")
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                if target[name].shape != tensor.shape:
                    shapes = f"{list(tensor.shape)} and {list(target[name].shape)}"
                    raise ValueError(f"{name} has different shapes: {shapes}")
                target[name].copy_(tensor)


def _sizes_put_back(model: nn.Module, state: State) -> str:
    """Give buffers that a step has resized their sizes again; say which it was, mostly ""."""
    told = ""
    for name, tensor in _state(model).items():
        before = state.tensors[name].shape if name in state.tensors else tensor.shape
        if tensor.shape != before:
            told = (
                f"forward gives the buffer {name} another size in its first step, "
                f"{list(before)} → {list(tensor.shape)}: run the model once in build_model()"
            )
            tensor.resize_(before)
    return told


@contextlib.contextmanager
def left_as_it_was(model: nn.Module, filled: Sequence[str] = ()) -> Iterator[State]:
    """Have a model's state and gradients back; buffers that its forward makes are taken away.

    Raises:
        TraceError: the step has given a buffer another size, so that its next one is another step.
    """
    state = State.of(model, filled)
    gradients = [(p, p.grad) for p in model.parameters()]  # a model may be given as it is trained
    flags = [(buffer, buffer.requires_grad) for buffer in model.buffers()]
    try:
        with first_step_undone(model, filled):
            yield state
    finally:
        resized = _sizes_put_back(model, state)
        state.restore(model)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for buffer, required in flags:
            if buffer.is_leaf and buffer.requires_grad != required:
                buffer.requires_grad_(required)
                buffer.grad = None
        if resized and isinstance(sys.exc_info()[1], Exception | None):  # not of an interrupt
            raise TraceError(resized)


def run_steps(
    model: nn.Module,
    state: State,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    steps: int,
) -> list[Outcome]:
    """Run training steps from a given state; gradients accumulate from one to the next.

    The inputs are copied first, so that a step that writes into them harms nobody. Buffers that
    forward makes are seen in what is left behind, and taken away: a run begins without them.
    Between steps parameters change a little, as an optimizer would have it: what follows from them
    is no constant.
    """
    args, kwargs = copy.deepcopy((tuple(args), dict(kwargs)))
    state.restore(model)
    clear_gradients(model, args, kwargs)
    outcomes: list[Outcome] = []
    before = _attributes(model)
    with first_step_undone(model, state.filled):
        for step in range(steps):
            torch.manual_seed(step)
            outputs = training_step(model, args, kwargs)
            left = {(ATTRIBUTES, path): _copy_leaf(v) for path, v in _new_ones(model, before)}
            held = {(HELD, path): v for path, v in _attributes(model).items() if is_literal(v)}
            outcomes.append(dict(_observe(model, outputs, (args, kwargs))) | left | held)
            del outputs
            _change_parameters(model)
    return outcomes


def _change_parameters(model: nn.Module) -> None:
    """Change what is trained, in any model by the same bits.

    Zeros, too: behind a last layer that begins as such, much is 0 that is something else later.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                zero = parameter.abs() < torch.finfo(parameter.dtype).tiny  # and those next to it
                parameter.mul_(_CHANGE).masked_fill_(zero, _CHANGE - 1)


def evaluate(
    model: nn.Module, state: State, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Outcome, Outcome]:
    """Run a forward in evaluation mode from a given state, and a training step behind it.

    Trainers do so after each epoch, and an evaluation may change the model.
    """
    args, kwargs = copy.deepcopy((tuple(args), dict(kwargs)))
    state.restore(model)
    clear_gradients(model, args, kwargs)
    with held_as_before(model):
        model.eval()
        try:
            with torch.no_grad():
                torch.manual_seed(0)
                outputs = model(*args, **kwargs)
        finally:
            model.train()
        evaluated = {(EVALUATION, name): leaf for name, leaf in _outputs(outputs)}
        torch.manual_seed(0)
        outputs = training_step(model, args, kwargs)
        step = _observe(model, outputs, (args, kwargs))
        return evaluated, {(BEHIND, f"{kind}: {name}"): leaf for (kind, name), leaf in step}


def repeat_step(
    model: nn.Module,
    state: State,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    in_flight: int,
) -> tuple[list[Outcome], PeakMeasurement]:
    """Run a step twice on the CPU, from one state and seed; the second one is measured.

    It has gradients in `.grad` before, as a budget means, of zeros: what it adds is what it leaves.
    Gradients are taken away, not copied: they may be as large as all that the model is.
    """
    once, again = (copy.deepcopy((tuple(args), dict(kwargs))) for _ in range(2))
    inputs = list(zip(leaves_of(once), leaves_of(again), strict=True))
    clear_gradients(model, *once)
    clear_gradients(model, *again)
    found: list[Outcome] = []

    def step(given: tuple[Any, Any]) -> object:
        return training_step(model, *given, in_flight=in_flight)

    def begin() -> None:
        state.restore(model)
        torch.manual_seed(0)

    def warm_up() -> None:
        begin()
        with first_step_undone(model, state.filled):
            found.append(dict(_observe(model, step(once), once, _taken)))
        _zero_gradients(model, inputs)
        begin()

    def look(outputs: object) -> None:
        found.append(dict(_observe(model, outputs, again, _taken)))

    peak = watched_peak(warm_up, lambda: step(again), look)
    clear_gradients(model, *again)
    return found, peak


def _zero_gradients(model: nn.Module, inputs: Sequence[tuple[Any, Any]]) -> None:
    """Let parameters, and inputs of a second step, have gradients of zeros like those of the first.

    Those of the first may share memory.
    """
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad = torch.zeros_like(parameter.grad)
    for first, second in inputs:
        if isinstance(first, torch.Tensor) and first.grad is not None:
            second.grad = torch.zeros_like(first.grad)


def in_double(value: Any) -> Any:
    """Copy what a model takes, its floating tensors in double precision."""

    def double(tensor: torch.Tensor) -> torch.Tensor:
        copied = tensor.detach().clone()
        copied = copied.double() if tensor.is_floating_point() else copied
        return copied.requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(torch.Tensor, double, value)


def _observe(
    model: nn.Module,
    outputs: object,
    inputs: object,
    gradient_of: Callable[[torch.Tensor], object] | None = None,
) -> Iterator[tuple[tuple[str, str], object]]:
    gradient_of = gradient_of or (lambda leaf: _copy_leaf(leaf.grad))
    for name, output in _outputs(outputs):
        yield ("outputs", name), output
    for name, parameter in model.named_parameters(remove_duplicate=False):
        yield ("gradients", name), gradient_of(parameter)
    for i, leaf in enumerate(leaves_of(inputs)):
        if isinstance(leaf, torch.Tensor):
            yield ("inputs", f"input {i}"), _copy(leaf)
            if leaf.requires_grad:
                yield ("input gradients", f"input {i}"), gradient_of(leaf)
    for name, buffer in _buffers(model):
        yield ("buffers", name), _copy(buffer)
    for kind in reversed(KINDS):
        for device, state in kind.rng_states():
            yield ("random state", device), state


def _outputs(outputs: object) -> Iterator[tuple[str, object]]:
    yield "structure", structure_of(outputs)
    for i, output in enumerate(leaves_of(outputs)):
        yield f"output {i}", _copy_leaf(output)


def _attributes(model: nn.Module) -> dict[str, object]:
    """Return tensors and plain values that modules hold, also in dicts and lists, by path."""
    return {
        path: value
        for path, value in held_on(model)
        if is_literal(value) or (isinstance(value, torch.Tensor) and value.layout is torch.strided)
    }


def _new_ones(model: nn.Module, before: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield the attributes that are others than before: other tensors, other values but None."""
    for path, value in _attributes(model).items():
        old = before.get(path)
        if value is old or value is None:
            continue
        if isinstance(value, torch.Tensor) or isinstance(old, torch.Tensor) or value != old:
            yield path, value


def _state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters(remove_duplicate=False)), **dict(_buffers(model))}


def _buffers(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the buffers that a plan may read: it reads no sparse one."""
    for name, buffer in model.named_buffers(remove_duplicate=False):
        if buffer.layout is torch.strided:
            yield name, buffer


def _taken(leaf: torch.Tensor) -> object:
    """Return a leaf's gradient, which nothing adds to any more."""
    return None if leaf.grad is None else leaf.grad.detach()


def _copy_leaf(leaf: object) -> object:
    return _copy(leaf) if isinstance(leaf, torch.Tensor) else leaf


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)
