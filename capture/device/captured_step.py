"""A training step as one CUDA graph: for steps that wait for the host to launch them.

Forward and backward are captured once and replayed. What a graph cannot repeat is refused when it
is captured; what may have changed since is compared before each replay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from remat_gen.capture.device.graph_draws import Draws, in_place_of_generator
from remat_gen.capture.device.host_watch import HostWatch
from remat_gen.capture.device.kinds import KINDS, kind_of
from remat_gen.ir.errors import UsageError

_WARMUPS = 3  # as PyTorch advises: libraries choose their kernels, and make their workspaces


def capture_step(
    model: nn.Module, step: Callable[..., Any], *example: Tensor, warmups: int = _WARMUPS
) -> CapturedStep:
    """Capture `step(*example)`, forward and backward of a model, into a CUDA graph.

    The step runs some times before: parameters, buffers, gradients and generators are put back. The
    optimizer stays outside.

    Args:
        model: what the step trains, on a GPU, planned or not.
        step: takes tensors, runs forward and backward, returns tensors.
        example: tensors of the shapes that every step has, on the GPU.
        warmups: how many steps are run before.

    Raises:
        UsageError: a graph could not do the step again, with the operation and its line.
    """
    device = _device_of(model, example)
    state = [t.detach().clone() for t in _state(model)]
    gradients = [p.grad for p in model.parameters()]
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.cuda.device(device))
        for kind in KINDS:
            stack.enter_context(kind.kept_generators())
        stack.callback(_put_back, model, state, gradients)
        return _captured(model, step, [t.detach().clone() for t in example], warmups, device)


@dataclass(slots=True)
class CapturedStep:
    """Replays a captured step. Its results are overwritten by the next call.

    `.grad` is what it is after an eager step: added to where it is there, new where it is None.
    """

    model: nn.Module
    graph: Any  # torch.cuda.CUDAGraph
    draws: Draws
    given: list[Tensor]
    results: Any
    made: list[tuple[nn.Parameter, Tensor]]
    expected: tuple[object, ...]

    def __call__(self, *inputs: Tensor) -> Any:
        """Run the step on other inputs of the same shapes.

        Raises:
            UsageError: the inputs or the model are not as when it was captured.
        """
        self._refuse_changes(inputs)
        for ours, theirs in zip(self.given, inputs, strict=True):
            ours.copy_(theirs)
        kept = [p.grad.clone() if p.grad is made else p.grad for p, made in self.made]
        self.draws.place()
        self.graph.replay()
        for (parameter, made), before in zip(self.made, kept, strict=True):
            if before is None:
                parameter.grad = made
            elif parameter.grad is made:
                made.add_(before)
            else:
                before.add_(made)
        return self.results

    def _refuse_changes(self, inputs: Sequence[Tensor]) -> None:
        asked, captured = list(map(_shape, inputs)), list(map(_shape, self.given))
        if asked != captured:
            raise UsageError(
                f"the step was captured for {', '.join(captured)}, and is given {', '.join(asked)}:"
                " capture one for each shape, or call the model itself"
            )
        if _fixed(self.model) != self.expected:
            raise UsageError(
                "the model has changed since its step was captured (train() or eval(), "
                "requires_grad, or where a parameter or buffer is): capture it again"
            )


def _put_back(
    model: nn.Module, state: Sequence[Tensor], gradients: Sequence[Tensor | None]
) -> None:
    with torch.no_grad():
        for tensor, value in zip(_state(model), state, strict=True):
            tensor.copy_(value)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient


def _device_of(model: nn.Module, example: Sequence[Tensor]) -> torch.device:
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise UsageError("a step under DistributedDataParallel is not captured: its hooks run here")
    tensors = [*_state(model), *example]
    elsewhere = next((t.device for t in tensors if not kind_of(t.device).has_graphs), None)
    if elsewhere is not None:
        raise UsageError(f"a step on {elsewhere} cannot be captured: move all of it to a GPU")
    if any(t.requires_grad for t in example):
        raise UsageError("an input that requires grad cannot be captured: detach it")
    if not tensors:
        raise UsageError("a step without tensors cannot be captured")
    return tensors[0].device


def _captured(
    model: nn.Module,
    step: Callable[..., Any],
    given: list[Tensor],
    warmups: int,
    device: torch.device,
) -> CapturedStep:
    index = torch.cuda.current_device()
    draws = Draws(torch.cuda.default_generators[index])
    host, versions = torch.get_rng_state(), [p._version for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    with in_place_of_generator(draws, index):
        with _beside(device):
            for _ in range(max(warmups - 1, 1)):
                step(*given)
            model.zero_grad(set_to_none=True)
            draws.note()
            with HostWatch():
                step(*given)
        if versions != [p._version for p in model.parameters()]:
            raise UsageError("the step changes parameters: let the optimizer step behind it")
        if not torch.equal(host, torch.get_rng_state()):
            raise UsageError("the step draws on the host, and a graph would not: pass device=")
        model.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        draws.join(graph)
        draws.capturing = True
        try:
            with torch.cuda.graph(graph):
                results = step(*given)
        finally:
            draws.capturing = False
    made = [(p, p.grad) for p in model.parameters() if p.grad is not None]
    results = pytree.tree_map_only(Tensor, Tensor.detach, results)
    return CapturedStep(model, graph, draws, given, results, made, _fixed(model))


@contextlib.contextmanager
def _beside(device: torch.device) -> Iterator[None]:
    """Run on a stream of its own, as what is captured does."""
    present, stream = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    stream.wait_stream(present)
    with torch.cuda.stream(stream):
        yield
    present.wait_stream(stream)


def _state(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _fixed(model: nn.Module) -> tuple[object, ...]:
    """Return what a graph takes for granted: modes, and where tensors are."""
    modes = tuple(module.training for module in model.modules())
    return modes, tuple((t.data_ptr(), t.requires_grad) for t in _state(model))


def _shape(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
