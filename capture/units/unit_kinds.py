"""The calls of a step's units, and which of them are alike: those are traced once.

Units are of one kind where they are called alike, are made of the same, and read the same values.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from remat_gen.capture.load.arguments import describe_call
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.load.records import register_containers
from remat_gen.capture.load.step_context import autocast_of, remember_autocast
from remat_gen.capture.observe.assumed import describe, described, layout_of
from remat_gen.capture.observe.outputs import Taken
from remat_gen.capture.process.copies import copied
from remat_gen.capture.refuse.kept_errors import ONCE
from remat_gen.capture.trace.trace import Traced, trace
from remat_gen.capture.units.boundary import Keeping, Kept, UnfitUnitError, UnitCall
from remat_gen.capture.units.step_settings import refuse_set_aside, settings
from remat_gen.capture.units.sums_apart import Edge, edge_of, readers_of, sums_apart
from remat_gen.capture.values.held import Held
from remat_gen.capture.values.kept_places import containers_in
from remat_gen.ir.errors import TraceError
from remat_gen.ir.graph import Kind as InputKind
from remat_gen.ir.size import Length


@dataclass(frozen=True, slots=True)
class Example:
    """How a unit is called: the layout of its arguments, and copies of the first such call's.

    `shared` has the leaves of the arguments that something else reads as well, in one such call,
    and how many gradients the unit adds up for each, `same` those that are one tensor. `taken` is
    what the step goes on with of what it returns and keeps: gradients may come into that.
    `varies` has leaves of the arguments, and which of their dimensions is the step's batch.
    """

    path: str
    layout: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shared: Mapping[int, int] = field(default_factory=dict)
    same: tuple[int, ...] = ()
    taken: Taken = frozenset()
    varies: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Examples:
    """The calls of a step by the units' paths; of calls alike the arguments are kept once.

    `handed` tells which leaf of a call's arguments is what leaf of an earlier call's results, or
    what that one keeps.
    `seed` is that of the step: from another one not all of the units might be called. `keeps` are
    the attributes that units set, by the unit's path. `before`
    has what each unit held before the step, `outside` what torch was set to, `aside` what the model
    had set on a unit when it called it. `pinned` says why the batch is the example's alone.
    """

    patterns: tuple[str, ...]
    units: Mapping[str, nn.Module]
    seed: int = 0
    before: Mapping[str, Held] = field(default_factory=dict)
    outside: dict[str, object] = field(default_factory=dict)
    aside: dict[str, dict[str, tuple[Any, Any]]] = field(default_factory=dict)
    pinned: str = ""
    keeps: dict[str, dict[str, None]] = field(default_factory=dict)
    _held: dict[str, Held] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)  # the paths, in order
    handed: dict[tuple[int, int], tuple[int, int | str]] = field(default_factory=dict)
    _returned: list[tuple[weakref.ref[torch.Tensor], int, int | str]] = field(default_factory=list)
    by_path: dict[str, Example] = field(default_factory=dict)
    _kept: dict[tuple[type, str], Example] = field(default_factory=dict)
    _edges: list[dict[int, Edge]] = field(default_factory=list)  # of the arguments' leaves, by call
    _nodes: dict[int, object] = field(default_factory=dict)
    _results: list[dict[int | str, Edge]] = field(default_factory=list)  # and kept, by call
    _summands: dict[str, Counter[int]] = field(default_factory=dict)  # of leaves, the most

    def note(self, call: UnitCall) -> None:
        """Note a call before it runs.

        Raises:
            UnfitUnitError: it holds a tensor that has come out of the step.
            TraceError: the same unit is called with other arguments than before.
        """
        register_containers((call.args, call.kwargs))
        leaves = pytree.tree_leaves((call.args, call.kwargs))
        same = _same_tensors(leaves)
        layout = layout_of_call(call.args, call.kwargs)
        layout += f", of which {same} are one tensor" if same else ""
        known = self.by_path.get(call.path)
        if known and known.layout != layout:
            raise TraceError(
                f"--units: {call.path} is called with other arguments each time: first "
                f"{known.layout}, then {layout}"
            )
        kind = type(self.units[call.path]), layout
        if kind not in self._kept:
            args, kwargs = pytree.tree_map_only(torch.Tensor, copied, (call.args, call.kwargs))
            self._kept[kind] = Example(call.path, layout, args, kwargs, same=same)
        self.by_path[call.path] = replace(self._kept[kind], path=call.path)
        edges: dict[int, Edge] = {}
        for leaf, value in enumerate(leaves):
            for reference, by, at in self._returned:
                if reference() is value:
                    self.handed[len(self.calls), leaf] = by, at
            if isinstance(value, torch.Tensor) and (edge := edge_of(value)):
                edges[leaf] = edge
        self._edges.append(edges)
        self.calls.append(call.path)
        self._refuse_given_aside(call.path)
        device = next((v.device.type for v in leaves if isinstance(v, torch.Tensor)), "cpu")
        refuse_set_aside(call.path, self.outside, settings(device))
        self._held[call.path] = Held.by(self.units[call.path], {})

    def _refuse_given_aside(self, path: str) -> None:
        """Refuse a unit on which the step sets a tensor with a gradient before its first call."""
        changed = {} if path in self.keeps else self.before[path].changed()
        self.aside.setdefault(path, {}).update(changed)
        for name, (_, now) in changed.items():
            if isinstance(now, torch.Tensor) and now.grad_fn is not None:
                raise UnfitUnitError(
                    f"--units: {path}.{name} is a tensor that the model computes with a gradient: "
                    "a unit has to be called with that as an argument",
                    path,
                )

    def note_returned(self, returned: object, kept: Kept, summands: Mapping[int, int]) -> None:
        """Note what the last call returned and kept, and what it adds up for its arguments."""
        register_containers(returned)
        path = self.calls[-1]
        held = self._held.pop(path)
        if changed := held.changed():
            self.keeps.setdefault(path, {}).update(dict.fromkeys(changed))
        self._summands[path] = self._summands.get(path, Counter()) | Counter(summands)
        self._results.append({})
        leaves: dict[int | str, Any] = dict(enumerate(pytree.tree_leaves(returned)))
        for at, leaf in (leaves | dict(kept)).items():
            if isinstance(leaf, torch.Tensor):
                self._returned.append((weakref.ref(leaf), len(self.calls) - 1, at))
                if edge := edge_of(leaf):
                    self._results[-1][at] = edge
                if leaf.grad_fn is not None:
                    self._nodes[len(self.calls) - 1] = leaf.grad_fn

    def settle(self, returned: object) -> None:
        """Find out, by what the model returned, which arguments something else reads as well.

        And which results anything reads.
        """
        register_containers(returned)
        readers, shared = readers_of(returned), dict[str, set[int]]()
        taken = dict[str, set[int | str]]()
        alike = {path: f"{type(unit)} {self.by_path[path].layout}" for path, unit in self._called()}
        for call, edges in enumerate(self._edges):
            own = {self._nodes.get(call)}
            found = {leaf for leaf, edge in edges.items() if readers.get(edge, own) - own}
            shared.setdefault(alike[self.calls[call]], set()).update(found)
            results = self._results[call].items()
            read = {leaf for leaf, edge in results if edge in readers}
            taken.setdefault(alike[self.calls[call]], set()).update(read)
        for path, example in self.by_path.items():
            summands = self._summands[path]
            both = {leaf: summands[leaf] for leaf in sorted(shared[alike[path]])}
            own_taken = frozenset(taken[alike[path]])
            self.by_path[path] = replace(example, shared=both, taken=own_taken)
        self._edges.clear()
        self._results.clear()
        self._nodes.clear()

    def _called(self) -> Iterable[tuple[str, nn.Module]]:
        return ((path, unit) for path, unit in self.units.items() if path in self.by_path)


@dataclass(frozen=True, slots=True)
class Kind:
    """Units that are alike: `unit` is the first of `paths`, and was traced."""

    paths: tuple[str, ...]
    unit: nn.Module
    traced: Traced

    @property
    def keeping(self) -> Keeping:
        """Return what such a unit keeps."""
        returned = self.traced.returned
        return Keeping(tuple(returned.kept), containers_in(returned.put))

    def tensor_at(self, place: int | str) -> str | None:
        """Return the tensor in the graph that is a leaf of what is returned, or is kept there."""
        outputs = self.traced.graph.outputs
        if isinstance(place, int):
            return outputs[place].tensor
        behind = dict(zip(reversed(self.keeping.tensors), reversed(outputs), strict=False))
        return behind[place].tensor if place in behind else None


@dataclass(slots=True)
class Kinds:
    """The kinds of a step's units: each is traced once, and what refuses one refuses its like."""

    loaded: Loaded
    static: bool
    found: list[tuple[nn.Module, Example, Traced]] = field(default_factory=list)
    refusals: dict[tuple[object, ...], TraceError] = field(default_factory=dict)

    def add(self, unit: nn.Module, example: Example) -> int:
        """Return the number of a unit's kind; trace it where it is the first of it.

        Raises:
            TraceError: it cannot be traced; the message begins with its path.
        """
        for number, (first, called, traced) in enumerate(self.found):
            known = called.layout, called.shared, called.taken, called.varies
            same = known == (example.layout, example.shared, example.taken, example.varies)
            if same and _alike(traced, first, unit):
                return number
        made_of = example.layout, example.taken, example.varies, _made_of(unit)
        if made_of in self.refusals:
            raise self.refusals[made_of]
        try:
            traced = _trace(self.loaded, example, unit, self.static)
        except TraceError as error:
            self.refusals[made_of] = error
            raise
        self.found.append((unit, example, traced))
        return len(self.found) - 1

    def of(self, examples: Examples) -> tuple[Kind, ...]:
        """Return the kinds of a step's units, those that are not known yet traced.

        Raises:
            TraceError: one cannot be traced; the message begins with its path.
        """
        paths: dict[int, list[str]] = {}
        for path, example in examples.by_path.items():
            number = self.add(examples.units[path], example)
            paths.setdefault(number, []).append(path)
            traced = self.found[number][2]
            _refuse_read_aside(path, examples.aside.get(path, {}), traced)
            _refuse_made_once(path, examples.before[path].changed(), traced)
        return tuple(
            Kind(tuple(alike), examples.units[alike[0]], self.found[number][2])
            for number, alike in paths.items()
        )


def _refuse_read_aside(path: str, aside: Mapping[str, tuple[Any, Any]], traced: Traced) -> None:
    """Refuse a unit that reads what the model sets on it when it calls it."""
    for name in aside.keys() & traced.reads.paths:
        before, now = map(describe, aside[name])
        if before == now:
            continue
        raise UnfitUnitError(
            f"--units: {path}.{name} is {now} where the model calls it, and {before} before: a "
            "unit has to be called with that as an argument",
            path,
        )


def _refuse_made_once(path: str, made: Mapping[str, tuple[Any, Any]], traced: Traced) -> None:
    """Refuse a unit that reads what its first call has made: a fresh model's would be another."""
    reads = traced.reads
    for name, both in made.items():
        inside = (p for p in reads.paths if p == name or p.startswith((f"{name}.", f"{name}[")))
        fresh, now = map(describe, both)
        if any(inside) and fresh not in (now, *reads.changed.get(name, ())):
            raise UnfitUnitError(
                f"--units: {path}.{name} is {fresh} until the first step, which goes on with it: "
                f"{ONCE}",
                path,
            )


def _made_of(unit: nn.Module) -> tuple[object, ...]:
    parts = [(path, type(module)) for path, module in unit.named_modules()]
    state = unit.state_dict(keep_vars=True).items()
    tensors = [(path, tuple(tensor.shape), tensor.requires_grad) for path, tensor in state]
    return (*parts, *tensors)


def _alike(traced: Traced, first: nn.Module, unit: nn.Module) -> bool:
    if type(unit) is not type(first):
        return False
    reads = traced.reads
    words = (dict(described(one, reads.paths, reads.file)) for one in (unit, first))
    now, planned = words
    may_be = {path: {*both} for path, both in reads.changed.items()}
    same = all(now[path] in may_be.get(path, {said}) for path, said in planned.items())
    return same and now.keys() == planned.keys()


def _trace(loaded: Loaded, example: Example, unit: nn.Module, static: bool) -> Traced:
    with loaded.importable(), remember_autocast(unit, autocast_of(loaded.model)):
        try:
            traced = _as_dynamic_as_possible(loaded, example, unit, static)
        except TraceError as error:
            raise TraceError(f"{example.path}, as a unit: {error}") from error
    if example.same and traced.reads.asks_identity:
        given = " and ".join(traced.call.leaves[leaf].path for leaf in example.same)
        raise TraceError(
            f"{example.path}, as a unit: it is given one tensor as {given}, and does something "
            "else then than with several: name what is around it, where that tensor comes in once"
        )
    most = {traced.call.leaves[leaf].path: count for leaf, count in example.shared.items()}
    inputs = [i for i in traced.graph.inputs if i.kind is InputKind.INPUT and i.path in most]
    summands = {i.tensor: most[i.path] for i in inputs}
    return replace(traced, graph=sums_apart(traced.graph, summands))


def _as_dynamic_as_possible(
    loaded: Loaded, example: Example, unit: nn.Module, static: bool
) -> Traced:
    where = (unit, example.args, example.kwargs, loaded.path)
    pinned = ""
    if example.varies and not static:
        leaves = describe_call(unit, example.args, example.kwargs).leaves
        size = leaves[example.varies[0][0]].value.shape[example.varies[0][1]]
        dims = tuple((leaves[leaf].path, dim) for leaf, dim in example.varies)
        try:
            batch = Length("batch", 1, size, dims)
            return trace(*where, batch, loaded.stands_for, taken=example.taken)
        except TraceError as refused:
            pinned = f"{example.path}, as a unit: {refused}"
    return replace(trace(*where, (), loaded.stands_for, taken=example.taken), pinned=pinned)


def layout_of_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Describe the arguments of a call: shapes, dtypes, and what is no tensor."""
    return ", ".join([*map(_words, args), *(f"{name}={_words(v)}" for name, v in kwargs.items())])


def _words(value: object) -> str:
    leaves, structure = pytree.tree_flatten(value)
    said = [_leaf(leaf) for leaf in leaves]
    return said[0] if structure.is_leaf() else f"{type(value).__name__}({', '.join(said)})"


def _leaf(leaf: object) -> str:
    if isinstance(leaf, torch.Tensor):
        return f"{layout_of(leaf)}{', requires grad' if leaf.requires_grad else ''}"
    return describe(leaf)


def _same_tensors(leaves: Iterable[object]) -> tuple[int, ...]:
    """Return the positions of tensors that stand in several places."""
    tensors = [(i, id(leaf)) for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    often = Counter(identity for _, identity in tensors)
    return tuple(i for i, identity in tensors if often[identity] > 1)
