"""A step whose units were traced apart, as one trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import nn

from remat_gen.capture.load.arguments import describe_call
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.lower.model_layers import layers_of
from remat_gen.capture.observe.outputs import Returned
from remat_gen.capture.profile.timing import round_time_us
from remat_gen.capture.trace.lengths import found_lengths
from remat_gen.capture.trace.trace import Traced
from remat_gen.capture.units.boundary import Strides
from remat_gen.capture.units.joined import (
    Call,
    across_the_turn,
    call_names,
    common_lengths,
    joined,
)
from remat_gen.capture.units.shared_parameters import waiting
from remat_gen.capture.units.sums_apart import later_summands
from remat_gen.capture.units.unit_kinds import Examples, Kind, Kinds
from remat_gen.ir.costs import Cost, Costs
from remat_gen.ir.graph import Kind as InputKind
from remat_gen.ir.paths import OUTERMOST


@dataclass(frozen=True, slots=True)
class EagerParts:
    """What eager holds where each phase begins, and needs at most between two; its times there.

    `held_bytes` has a number for each call of a unit in forward, then in backward. The others have
    one more: the first is of what comes before the first phase. `incoming` has the strides of the
    gradients that came into what each call returned. `turn_bytes` are held where forward has ended.
    `sharded` is for units that FSDP2 shards.
    """

    held_bytes: tuple[int, ...]
    highest_bytes: tuple[int, ...] = ()
    times_us: tuple[float, ...] = ()
    incoming: tuple[tuple[Strides, ...], ...] = ()
    turn_bytes: int = 0
    sharded: bool = False


@dataclass(frozen=True, slots=True)
class UnitStep(Traced):
    """A traced step of units; its graph is joined from those of the `kinds`.

    `calls` are the paths of the units in the order of the step, `names` those calls' own names,
    `patterns` what names the units. `model` has the parameters as the units compute with them.
    """

    patterns: tuple[str, ...] = ()
    eager: EagerParts = EagerParts(())
    kinds: tuple[Kind, ...] = ()
    calls: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    model: nn.Module | None = None

    @property
    def dynamic(self) -> tuple[str, ...]:
        """Return the dimensions of the model's own inputs that may be smaller."""
        lengths = found_lengths(self.call) if self.graph.lengths else ()
        return tuple(f"{path}:{dim}" for length in lengths for path, dim in length.dims)

    def kind_of(self, path: str) -> Kind:
        """Return the kind of a unit."""
        return next(kind for kind in self.kinds if path in kind.paths)


def unit_step(loaded: Loaded, examples: Examples, eager: EagerParts, found: Kinds) -> UnitStep:
    """Trace the units of a step and join them."""
    kinds = found.of(examples)
    graphs = [kind.traced.graph for kind in kinds]
    pinned = "" if common_lengths(graphs) else _pinned(examples, kinds)
    if pinned and any(graph.lengths for graph in graphs):
        kinds = Kinds(found.loaded, static=True).of(examples)
    of = {path: kind for kind in kinds for path in kind.paths}
    names = call_names(examples.calls)
    calls = [
        Call(name, path, of[path].traced.graph, _handed(examples, of, number))
        for number, (name, path) in enumerate(zip(names, examples.calls, strict=True))
    ]
    eager = _with_copies(eager, calls)
    device = loaded.device.type
    join = partial(joined, calls, eager.held_bytes, device, sharded=eager.sharded)
    graph = join(layers_of(loaded.model, join(OUTERMOST)), waiting(loaded.model, calls))
    return UnitStep(
        graph=graph,
        call=describe_call(loaded.model, loaded.args, loaded.kwargs),
        returned=Returned(None, ()),
        examples={},
        strict=True,
        autocast=kinds[0].traced.autocast,
        left_out=tuple(dict.fromkeys(left for kind in kinds for left in kind.traced.left_out)),
        pinned=pinned,
        left=_in_units(kinds, lambda traced: traced.left),
        unset=_in_units(kinds, lambda traced: traced.unset),
        patterns=examples.patterns,
        eager=eager,
        kinds=kinds,
        calls=tuple(examples.calls),
        names=tuple(names),
        waiting_bytes=max(0, eager.turn_bytes - across_the_turn(calls, eager.held_bytes)),
        model=loaded.model,
    )


def _in_units(kinds: Sequence[Kind], paths: Callable[[Traced], tuple[str, ...]]) -> tuple[str, ...]:
    """Return paths in units as paths in the model."""
    return tuple(f"{at}.{p}" for kind in kinds for at in kind.paths for p in paths(kind.traced))


def _pinned(examples: Examples, kinds: Sequence[Kind]) -> str:
    """Say why the step is planned for the example's batch alone; "" where it was asked for."""
    return next(filter(None, (examples.pinned, *(kind.traced.pinned for kind in kinds))), "")


def _with_copies(eager: EagerParts, calls: Sequence[Call]) -> EagerParts:
    """Count the copies of gradients that come in other strides than a unit's backward takes."""
    held = list(eager.held_bytes)
    for number, strides in enumerate(eager.incoming):
        graph = calls[number].graph
        tensors = [output for output in graph.outputs if output.tensor]
        for output, stride in zip(tensors, strides, strict=True):
            if output.tangent and stride not in (None, graph.tensors[output.tangent].stride):
                held[2 * len(calls) - 1 - number] += graph.storage_of(output.tangent).nbytes
    return replace(eager, held_bytes=tuple(held))


def _handed(examples: Examples, of: Mapping[str, Kind], number: int) -> dict[str, tuple[int, str]]:
    """Return which inputs of a call an earlier one made: the call, and its tensor."""
    traced = of[examples.calls[number]].traced
    given = [i for i in traced.graph.inputs if i.kind is InputKind.INPUT]
    inputs = {i.path: i.tensor for i in reversed(given)}  # where one stands twice, the first
    found = {}
    own = ((leaf, made) for (call, leaf), made in examples.handed.items() if call == number)
    for leaf, (by, at) in own:
        path = traced.call.leaves[leaf].path
        graph = of[examples.calls[by]].traced.graph
        tensor = of[examples.calls[by]].tensor_at(at)
        if tensor and path in inputs and not graph.storage_of(tensor).kind.outside:
            found[inputs[path]] = by, tensor
    return found


def joined_costs(step: UnitStep, costs: Sequence[Costs]) -> Costs:
    """Return the costs of a joined graph from those of the kinds and what eager needs between."""
    by_kind = {id(kind): found.operations for kind, found in zip(step.kinds, costs, strict=True)}
    operations = dict(_eager_costs(step))
    for name, path in zip(step.names, step.calls, strict=True):
        own = by_kind[id(step.kind_of(path))]
        operations |= {f"{name}.{o}": _at_lengths(step, cost) for o, cost in own.items()}
    return Costs(costs[0].device, operations, costs[0].alignment_bytes)


def _at_lengths(step: UnitStep, cost: Cost) -> Cost:
    """Leave out what a cost says of smaller lengths where the step has none."""
    return cost if step.graph.lengths else replace(cost, smaller=())


def _eager_costs(step: UnitStep) -> Iterator[tuple[str, Cost]]:
    graph, eager, n = step.graph, step.eager, len(step.calls)
    held = (0, *eager.held_bytes)
    phases = ["eager.start.leave"]
    phases += [f"eager.{name}.leave" for name in step.names]
    phases += [f"eager.{name}.d_leave" for name in reversed(step.names)]
    by_name = {operation.name: operation for operation in graph.operations}
    later = {
        f"{name}.{tensor}"
        for name, path in zip(step.names, step.calls, strict=True)
        for tensor in later_summands(step.kind_of(path).traced.graph)
    }  # the measured units returned their sums
    given = (g.tensor for g in graph.gradients if g.tensor and g.tensor not in later)
    gradients = {graph.tensors[tensor].storage for tensor in given}
    for i, name in enumerate(phases):
        read = [s for s in graph.reads(by_name[name]) if not s.startswith("eager.")]
        returned = read if i <= n else [s for s in read if s in gradients]
        need = eager.highest_bytes[i] - held[i] - sum(graph.storages[s].nbytes for s in returned)
        yield name, Cost(round_time_us(eager.times_us[i]), max(0, need))
    for name in step.names:
        yield f"eager.{name}.enter", Cost(0.0, 0)
        yield f"eager.{name}.d_enter", Cost(0.0, 0)
