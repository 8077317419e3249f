"""Run a step whose units keep nothing but their inputs, and say when each begins and ends.

What is allocated where a unit begins is then what the eager rest of the model holds, and what units
hand to each other. A unit runs once more in backward, for its gradients.
"""

from __future__ import annotations

import contextlib
import copy
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn
from torch.utils import _pytree as pytree

from remat_gen.capture.load.records import register_containers
from remat_gen.capture.units.sums_apart import edge_of, edges_behind
from remat_gen.capture.values.held import Held, kept_as_it_is
from remat_gen.capture.values.kept_places import put_at, values_at
from remat_gen.ir.errors import TraceError

Strides: TypeAlias = tuple[int, ...] | None
Kept: TypeAlias = Mapping[str, Any]  # what a unit keeps on itself, by paths of attributes


class UnfitUnitError(TraceError):
    """What is at `paths` can be no unit, though others may: the step as a whole tells so."""

    def __init__(self, message: str, *paths: str) -> None:
        super().__init__(message)
        self.paths = paths


class Phase(NamedTuple):
    """A call of a unit, by its number in the step, in forward or in backward."""

    call: int
    backward: bool


@dataclass(frozen=True, slots=True)
class UnitCall:
    """What a unit is called with; the tensors are the step's own."""

    path: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Keeping:
    """The paths of `tensors` that a unit keeps, and its own empty `containers` for some of them."""

    tensors: tuple[str, ...] = ()
    containers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class BoundaryRun:
    """One step at its units' boundaries: `inside` is entered while a unit runs.

    `begins` hears of each call before it runs, `ends` of what it returns and keeps on itself, and
    how many gradients are added up for each leaf of its arguments. `phases` are those of the step,
    in order, `incoming` are the strides of gradients that came into each call's results.
    Units that run where nothing is recorded for backward are `without_gradient`.
    `shared_bytes` are those of the units' parameters that eager reads as well. What units keep is
    forgotten but for what it `keeps` by their paths; where that is not known, they keep all.
    """

    units: Mapping[str, nn.Module]
    inside: Callable[[Phase], AbstractContextManager[object]]
    begins: Callable[[UnitCall], object] = lambda _: None
    ends: Callable[[object, Kept, Mapping[int, int]], object] = lambda *_: None
    phases: list[Phase] = field(default_factory=list)
    calls: int = 0
    running: set[str] = field(default_factory=set)
    incoming: dict[int, tuple[Strides, ...]] = field(default_factory=dict)
    keeps: Mapping[str, Keeping] | None = None
    without_gradient: set[str] = field(default_factory=set)
    shared_bytes: int = 0

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Let the units' calls go by here."""
        before = {path: vars(unit).get("forward") for path, unit in self.units.items()}
        for path, unit in self.units.items():
            vars(unit)["forward"] = partial(self._call, path, unit, unit.forward)
        try:
            yield
        finally:
            for path, unit in self.units.items():
                del vars(unit)["forward"]
                if before[path] is not None:
                    vars(unit)["forward"] = before[path]

    def within(self, phase: Phase) -> AbstractContextManager[object]:
        """Return the context in which a unit runs."""
        self.phases.append(phase)
        return self.inside(phase)

    def _call(
        self, path: str, unit: nn.Module, forward: Any, /, *args: Any, **kwargs: Any
    ) -> object:
        if path in self.running or not (unit.training and torch.is_grad_enabled()):
            self.without_gradient |= {path} - self.running
            return forward(*args, **kwargs)  # its own call of `self.forward` lies inside
        if torch._C._current_graph_task_id() != -1:
            raise UnfitUnitError(
                f"--units: backward calls {path} again, as torch.utils.checkpoint does: a planned "
                "unit says itself what runs again, so leave the checkpoint out",
                path,
            )
        self.begins(UnitCall(path, args, kwargs))
        call = _Call(self, self.calls, path, forward, *pytree.tree_flatten((args, kwargs)))
        self.calls += 1
        returned, kept = call.run()
        self.ends(returned, kept, call.summands)
        return returned


@dataclass(slots=True, eq=False)
class _Call:
    """A call of a unit as a function of the tensors in its arguments."""

    step: BoundaryRun
    number: int
    path: str
    forward: Any
    leaves: list[Any]
    structure: Any
    returned: Any = None
    kept: Sequence[str] = ()
    values: list[Any] = field(default_factory=list)
    summands: dict[int, int] = field(default_factory=dict)
    autocast: tuple[str, torch.dtype, bool] = field(init=False)

    def __post_init__(self) -> None:
        kind = next((t.device.type for t in self.tensors()), "cpu")
        self.autocast = kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors in the arguments."""
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def run(self) -> tuple[object, Kept]:
        """Run the unit where autograd sees nothing but its arguments and results.

        What it keeps are results as well: they are put where it has kept them.

        Raises:
            TraceError: it returns no tensor.
        """
        token = torch.empty(0, requires_grad=True)
        apply: Callable[..., tuple[torch.Tensor, ...]] = _Boundary.apply
        results = iter(apply(token, self, *self.tensors()))
        values = [next(results) if _is_tensor(v) else v for v in self.values]
        self.values.clear()
        kept = dict(zip(self.kept, values[self.returned.num_leaves :], strict=True))
        containers = (self.step.keeps or {}).get(self.path, Keeping()).containers
        put_at(self.step.units[self.path], copy.deepcopy({**containers}) | kept)
        return pytree.tree_unflatten(values[: self.returned.num_leaves], self.returned), kept

    def results(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the unit on other tensors; return those in what it returns, each once more."""
        others = iter(tensors)
        leaves = [next(others) if _is_tensor(leaf) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        kind, dtype, enabled = self.autocast
        self.step.running.add(self.path)
        own, keeps = self.step.units[self.path], self.step.keeps
        forgotten = contextlib.nullcontext() if keeps is None else kept_as_it_is(own)
        try:
            with torch.enable_grad(), torch.autocast(kind, dtype=dtype, enabled=enabled), forgotten:
                before = Held.by(own, {})
                returned = self.forward(*args, **kwargs)
                register_containers(returned)
                values, self.returned = pytree.tree_flatten(returned)
                known = None if keeps is None else keeps.get(self.path, Keeping())
                self.kept = known.tensors if known else before.kept()
                kept = values_at(own, self.kept)
        except RuntimeError as error:
            if "a leaf Variable that requires grad" in str(error):
                raise UnfitUnitError(
                    f"--units: {self.path} writes into what it is called with, which a planned unit"
                    " keeps for its backward: let it make a new tensor (x = x + y)",
                    self.path,
                ) from error
            raise
        finally:
            self.step.running.remove(self.path)
        now, structure = pytree.tree_flatten((args, kwargs))
        if structure != self.structure or any(map(operator.is_not, now, leaves)):
            raise UnfitUnitError(
                f"--units: {self.path} changes a list or dict that it is given, which a planned "
                "unit would not: let it return what is new, or name what is around it",
                self.path,
            )
        if not any(map(_is_tensor, values)):
            raise TraceError(f"--units: {self.path} returns no tensor")
        values += kept.values()
        found = [value for value in values if _is_tensor(value)]
        self.values = [torch.empty(0) if _is_tensor(value) else value for value in values]
        return found

    def first(self, tensors: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, bool]]:
        """Return the results, without what leads to them, and whether they require grad."""
        given = _apart(tensors)
        results = self.results(given)
        counts = edges_behind(results)
        at = (number for number, leaf in enumerate(self.leaves) if _is_tensor(leaf))
        self.summands = {n: counts[edge_of(t)] for n, t in zip(at, given, strict=True)}
        return [(t.detach(), t.requires_grad) for t in results]

    def gradients(
        self, tensors: Sequence[torch.Tensor], incoming: Sequence[torch.Tensor | None]
    ) -> list[torch.Tensor | None]:
        """Run the unit again, and backward: return the gradients of its tensors."""
        given, found = _apart(tensors), dict[int, torch.Tensor]()
        for i, tensor in enumerate(given):  # `.grad` would be laid out as the tensor is
            if tensor.requires_grad:
                tensor.register_hook(partial(found.__setitem__, i))
        pairs = zip(self.results(given), incoming, strict=True)
        self.values.clear()
        wanted = [(t, d) for t, d in pairs if t.requires_grad and d is not None]
        torch.autograd.backward([t for t, _ in wanted], [d for _, d in wanted])
        return [found.get(i) for i in range(len(given))]


class _Boundary(torch.autograd.Function):
    """A unit that keeps its inputs alone."""

    @staticmethod
    def forward(ctx: Any, _token: torch.Tensor, call: _Call, *tensors: torch.Tensor) -> Any:
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        with call.step.within(Phase(call.number, backward=False)):
            results = call.first(tensors)
        ctx.mark_non_differentiable(*(tensor for tensor, grad in results if not grad))
        return tuple(tensor for tensor, _ in results)

    @staticmethod
    def backward(ctx: Any, *incoming: torch.Tensor | None) -> Any:
        call: _Call | None = ctx.call
        if call is None:
            raise UnfitUnitError("--units: backward goes twice through one call of a unit")
        ctx.call = None  # the node outlives its backward; the unit's inputs should not
        call.step.incoming[call.number] = tuple(None if d is None else d.stride() for d in incoming)
        with call.step.within(Phase(call.number, backward=True)):
            gradients = call.gradients(ctx.saved_tensors, incoming)
        return None, None, *gradients


def _apart(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)
