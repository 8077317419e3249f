"""Ask torch's own partitioner what torch.compile would save at an `activation_memory_budget`.

The graph is handed over as the joint FX graph that it expects, with fake tensors; what comes back
is read, not run: which operations its backward runs, in which order. Our costs and our replay then
judge it like any other schedule. What a backend fuses afterwards is not modelled. Random operations
are marked as saved, as torch's own are but at a budget of 0.

Source: `torch/_functorch/partitioners.py`, `min_cut_rematerialization_partition`.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import CheckpointPolicy

from remat_gen.capture.as_eager.draws import compares_53_bits
from remat_gen.capture.profile.calls import materialise, resolve
from remat_gen.ir.graph import CHECK, Graph, Kind, Operation, Phase, Tensor, Trait, View, refs_in
from remat_gen.solver.contest.subject import Subject
from remat_gen.trade_off.baselines import Peer, in_one_backward

_SCALE = "remat.dropout_scale.default"
_NO_CALLS = ("remat.rng_state", "remat.constant", CHECK)
RATIOS = (1.0, 0.7, 0.5, 0.3, 0.1, 0.0)


def compiled_peers(graph: Graph, subject: Subject) -> Iterator[Peer]:
    """Yield what torch.compile's partitioner chooses at several budgets; equal choices once."""
    partitioner = Partitioner(graph)
    seen: set[tuple[int, ...]] = set()
    for ratio in RATIOS:
        backward = partitioner.backward_runs(ratio)
        if backward is None or tuple(backward) in seen:
            continue
        seen.add(tuple(backward))
        replayed = in_one_backward(subject, backward)
        if replayed is not None:
            yield Peer(f"torch.compile, budget {ratio:g}", replayed, ratio)


class Partitioner:
    """torch's partitioner on one graph."""

    def __init__(self, graph: Graph) -> None:
        """Write the graph for torch once; the partitioner copies what it needs."""
        self._joint = _Joint(graph)
        self._module = self._joint.build()

    def backward_runs(self, ratio: float) -> list[int] | None:
        """Return the operations of the partitioned backward, by index, re-runs included.

        None where torch's partitioner does not take the graph.
        """
        with _settings(ratio):
            try:
                _, backward = min_cut_rematerialization_partition(
                    self._module,
                    None,
                    num_fwd_outputs=self._joint.forward_outputs,
                    static_lifetime_input_indices=self._joint.static,
                )
            except (RuntimeError, AssertionError, TypeError, LookupError):  # its own, of many kinds
                return None
        numbers = self._joint.numbers
        nodes = (n for n in backward.graph.nodes if n.op == "call_function")  # no saved values
        return [numbers[node.name] for node in nodes if node.name in numbers]


@contextmanager
def _settings(ratio: float) -> Iterator[None]:
    """Set the budget; keep equal operations apart, since each is one of ours."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with config.patch(activation_memory_budget=ratio, cse=False):
            yield
    finally:
        logging.disable(before)


@dataclass(slots=True)
class _Joint:
    """Writes a graph as an FX graph; `numbers` has the index of each operation's node."""

    graph: Graph
    nodes: dict[str, fx.Node] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    fx_graph: fx.Graph = field(default_factory=fx.Graph)
    forward_outputs: int = 0
    static: list[int] = field(default_factory=list)
    mode: FakeTensorMode = field(default_factory=FakeTensorMode)
    index: dict[str, int] = field(default_factory=dict)

    def build(self) -> fx.GraphModule:
        self.index = {operation.name: i for i, operation in enumerate(self.graph.operations)}
        compares_53_bits()  # what it asks, fake tensors cannot answer
        with self.mode:
            self._inputs()
            steps = self._steps()
            for phase in Phase:
                for step in steps[phase]:
                    self._view(step) if isinstance(step, View) else self._operation(step)
        self._output()
        return fx.GraphModule(torch.nn.Module(), self.fx_graph)

    def _inputs(self) -> None:
        constants = [o for o in self.graph.operations if o.target == "remat.constant"]
        primals = [i.tensor for i in self.graph.inputs]
        primals += [name for o in constants for name in o.outputs if name]
        kinds = {i.tensor: i.kind for i in self.graph.inputs}
        for number, name in enumerate(primals):
            self._placeholder(f"primals_{number + 1}", name)
            if kinds.get(name) in (Kind.PARAMETER, Kind.BUFFER):
                self.static.append(number)
        tangents = [o.tangent for o in self.graph.outputs if o.tangent]
        for number, name in enumerate(dict.fromkeys(tangents)):
            self._placeholder(f"tangents_{number + 1}", name)

    def _placeholder(self, target: str, name: str) -> None:
        node = self.fx_graph.placeholder(target)
        node.meta["val"] = _fake(self.graph.tensors[name])
        self.nodes[name] = node

    def _steps(self) -> dict[Phase, list[Operation | View]]:
        """Return operations, each view before the first one that reads it."""
        waiting = {view.tensor: view for view in self.graph.views}
        steps: dict[Phase, list[Operation | View]] = {phase: [] for phase in Phase}

        def need(name: str, phase: Phase) -> None:
            view = waiting.pop(name, None)
            if view is not None:
                need(view.base, phase)
                steps[phase].append(view)

        for operation in self.graph.operations:
            if operation.target in _NO_CALLS:
                continue
            for name in refs_in((operation.args, operation.kwargs)):
                need(name, operation.phase)
            steps[operation.phase].append(operation)
        for name in list(waiting):
            need(name, Phase.BACKWARD)
        return steps

    def _operation(self, operation: Operation) -> None:
        node = self._call(operation.target, operation.args, operation.kwargs, operation.phase)
        self.numbers[node.name] = self.index[operation.name]
        if Trait.RANDOM in operation.traits:
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        if operation.single:
            self.nodes[str(operation.outputs[0])] = node
            return
        for i, name in enumerate(operation.outputs):
            if name:
                self.nodes[name] = self._item(node, i, operation.phase)

    def _view(self, view: View) -> None:
        node = self._call(view.target, view.args, view.kwargs, _phase(self.nodes[view.base]))
        if view.index is not None:
            node = self._item(node, view.index, _phase(node))
        self.nodes[view.tensor] = node

    def _call(self, target: str, args: Any, kwargs: Any, phase: Phase) -> fx.Node:
        function = resolve(target)
        nodes: Any = self.nodes
        positional: Any = tuple(materialise(argument, nodes) for argument in args)
        keywords: Any = {name: materialise(value, nodes) for name, value in kwargs}
        if target == _SCALE:  # makes a mask's floats: as a cast, which torch knows to be cheap
            mask, _keep, dtype = positional
            function, positional = torch.ops.aten._to_copy.default, (mask,)
            keywords = {"dtype": dtype}
        node = self.fx_graph.call_function(function, positional, keywords)
        values: Any = fx.node.map_arg((positional, keywords), lambda n: n.meta["val"])
        node.meta["val"] = function(*values[0], **values[1])
        _tag(node, phase)
        return node

    def _item(self, node: fx.Node, i: int, phase: Phase) -> fx.Node:
        item = self.fx_graph.call_function(operator.getitem, (node, i))
        item.meta["val"] = node.meta["val"][i]
        _tag(item, phase)
        return item

    def _output(self) -> None:
        mutated = [m.tensor for m in self.graph.mutations]
        returned = [o.tensor for o in self.graph.outputs if o.tensor]
        forward = [self.nodes[name] for name in dict.fromkeys(mutated + returned)]
        gradients = [g.tensor for g in self.graph.gradients if g.tensor]
        backward = [self.nodes[name] for name in dict.fromkeys(gradients)]
        self.forward_outputs = len(forward)
        self.fx_graph.output((*forward, *backward))


def _tag(node: fx.Node, phase: Phase) -> None:
    node.meta["partitioner_tag"] = f"is_{phase.value}"


def _phase(node: fx.Node) -> Phase:
    """Return the half of the step that a view belongs to: its base's."""
    tangent = node.op == "placeholder" and str(node.target).startswith("tangents")
    backward = tangent or node.meta.get("partitioner_tag") == "is_backward"
    return Phase.BACKWARD if backward else Phase.FORWARD


def _fake(tensor: Tensor) -> torch.Tensor:
    """Return a tensor without values; called under the fake mode."""
    dtype: torch.dtype = getattr(torch, tensor.dtype)
    return torch.empty_strided(tensor.shape, tensor.stride, dtype=dtype, device=tensor.device)
