"""One graph of a step whose units were traced apart: they run one after another, and back.

Eager parts stand between them, each as two operations: one leaves the unit before it, and needs
what eager needs at most there; one enters the unit behind it, and makes what eager then holds more
than before. So the replay has at each time what is allocated in the whole step. What units hand to
each other is part of what eager holds: in the graph it has no bytes, it only orders the units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from remat_gen.capture.repeated.all_layers import renamed
from remat_gen.ir.graph import (
    Gradient,
    Graph,
    Input,
    Kind,
    Mutation,
    Operation,
    Phase,
    Ref,
    Source,
    Storage,
    Tensor,
    Trait,
    View,
    verify,
)
from remat_gen.ir.paths import Layers
from remat_gen.ir.size import Length

ENTER, LEAVE = "remat.enter", "remat.leave"
EAGER = "eager."
_NOWHERE = Source("", 0, "")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a unit: its path, or `h.0#2` where it is called again, and its kind's graph.

    `handed` tells of inputs that are what an earlier call returned: its number and the tensor's
    name there.
    """

    name: str
    path: str
    graph: Graph
    handed: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def prefixed(self, name: str) -> str:
        """Return a name of the unit's graph in the step's."""
        return f"{self.name}.{name}"


def call_names(paths: Sequence[str]) -> list[str]:
    """Name the calls of a step: a unit's second one is `h.0#2`."""
    counts: dict[str, int] = {}
    names = []
    for path in paths:
        counts[path] = counts.get(path, 0) + 1
        names.append(path if counts[path] == 1 else f"{path}#{counts[path]}")
    return names


def joined(
    calls: Sequence[Call],
    held: Sequence[int],
    device: str,
    layers: Layers,
    waiting: Mapping[int, Sequence[str]] = MappingProxyType({}),
    *,
    sharded: bool = False,
) -> Graph:
    """Join the graphs of a step's calls; `held` are the bytes that eager holds in each phase.

    The phases are the calls in forward, then in backward in reverse order. What a unit hands to
    another is a value of its own: it is what the other one keeps of its inputs. Gradients that are
    `waiting` are there until the backward of a call, by its number. Where units are `sharded`,
    FSDP2 reduces the gradients of their parameters when a unit is left: all are there.
    """
    return _Join(calls, _levels_apart(calls, held), device, waiting, sharded).graph(layers)


def across_the_turn(calls: Sequence[Call], held: Sequence[int]) -> int:
    """Return the bytes of what a joined graph has between its last forward and first backward."""
    n = len(calls)
    kept = sum(nbytes for first, last, nbytes in _levels_apart(calls, held) if first < n <= last)
    return kept + handed_bytes(calls)[n]


def _levels_apart(calls: Sequence[Call], held: Sequence[int]) -> list[tuple[int, int, int]]:
    apart = [total - handed for total, handed in zip(held, handed_bytes(calls), strict=True)]
    return levels([max(0, nbytes) for nbytes in apart])


def handed_bytes(calls: Sequence[Call]) -> list[int]:
    """Return for each phase the bytes of what units handed to units that hold it then."""
    n = len(calls)
    until: dict[tuple[int, str], int] = {}  # the last phase, by what is handed on
    for reader, call in enumerate(calls):
        for by, tensor in call.handed.values():
            held = by, calls[by].graph.tensors[tensor].storage
            until[held] = max(until.get(held, 0), 2 * n - 1 - reader)
    sizes = [0] * (2 * n)
    for (by, storage), last in until.items():
        for phase in range(by + 1, last + 1):
            sizes[phase] += calls[by].graph.storages[storage].nbytes
    return sizes


def levels(held: Sequence[int]) -> list[tuple[int, int, int]]:
    """Take what is held apart into values: (first phase, last phase, bytes), the outer ones first.

    What is held less in a phase than before it is what came last.
    """
    values: list[tuple[int, int, int]] = []
    waiting: list[list[int]] = []  # [first phase, bytes], the last one on top
    for phase, nbytes in enumerate([*held, 0]):
        more = nbytes - sum(size for _, size in waiting)
        while more < 0:
            first, size = waiting[-1]
            ends = min(size, -more)
            values.append((first, phase - 1, ends))
            waiting[-1][1] -= ends
            more += ends
            if not waiting[-1][1]:
                waiting.pop()
        if more:
            waiting.append([phase, more])
    return sorted(values)


@dataclass(slots=True)
class _Join:
    calls: Sequence[Call]
    levels: list[tuple[int, int, int]]
    device: str
    waiting: Mapping[int, Sequence[str]]
    sharded: bool
    inputs: list[Input] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    storages: dict[str, Storage] = field(default_factory=dict)
    gradients: list[Gradient] = field(default_factory=list)
    mutations: list[Mutation] = field(default_factory=list)

    def graph(self, layers: Layers) -> Graph:
        """Return the graph of the step."""
        n = len(self.calls)
        for call in self.calls:
            self._add(call)
        order: list[str] = []
        self._leave("start", Phase.FORWARD, [], order)
        for i, call in enumerate(self.calls):
            self._enter(call, Phase.FORWARD, i, order)
            self._run(call, Phase.FORWARD)
            read = [*_ends(call), *self._ending(i)]
            self._leave(call.name, Phase.FORWARD, read, order)
        for i, call in enumerate(reversed(self.calls), start=n):
            self._enter(call, Phase.BACKWARD, i, order)
            self._run(call, Phase.BACKWARD)
            kept = [*map(call.prefixed, call.handed), *_read_again(call)]
            kept += self.waiting.get(2 * n - 1 - i, ())
            read = [*_handed_back(call, all_of_them=self.sharded), *kept, *self._ending(i)]
            self._leave(call.name, Phase.BACKWARD, read, order)
        lengths = common_lengths([call.graph for call in self.calls])
        layouts = {c.prefixed(t): at for c in self.calls for t, at in c.graph.layouts.items()}
        return verify(
            Graph(
                inputs=tuple(self.inputs),
                operations=tuple(self.operations),
                views=tuple(self.views),
                tensors=self.tensors,
                storages=self.storages,
                outputs=(),
                gradients=tuple(self.gradients),
                mutations=tuple(self.mutations),
                lengths=lengths,
                layouts=layouts if lengths else {},
                layers=layers,
            )
        )

    def _add(self, call: Call) -> None:
        """Add all of a call but its operations; what it is handed has no bytes."""
        graph, name = call.graph, call.prefixed
        inputs = {i.tensor for i in _handed(graph)}
        entered = inputs - call.handed.keys()
        kinds = {graph.tensors[t].storage: Kind.ACTIVATION for t in entered}
        kinds |= {graph.tensors[t].storage: Kind.GRADIENT for t in _tangents(graph)}
        for storage in graph.storages.values():
            kind = kinds.get(storage.name)
            nbytes = storage.nbytes if kind is None else 0
            self.storages[name(storage.name)] = Storage(
                name(storage.name), nbytes, kind or storage.kind
            )
        for tensor in graph.tensors.values():
            self.tensors[name(tensor.name)] = renamed(tensor, name)
        for tensor_name, (by, returned) in call.handed.items():
            self._hand(call.prefixed(tensor_name), self.calls[by].prefixed(returned))
        self.inputs += [
            replace(i, tensor=name(i.tensor), path=f"{call.path}.{i.path}")
            for i in graph.inputs
            if i.tensor not in inputs
        ]
        self.views += [renamed(view, name) for view in graph.views]
        self.gradients += [renamed(g, name) for g in graph.gradients if g.tensor]
        self.mutations += [renamed(mutation, name) for mutation in graph.mutations]

    def _hand(self, tensor: str, returned: str) -> None:
        """Let a tensor of a unit, and its views, be of what another one returned."""
        own, storage = (self.tensors[name].storage for name in (tensor, returned))
        del self.storages[own]
        views = [named for named in self.tensors.values() if named.storage == own]
        self.tensors |= {view.name: replace(view, storage=storage) for view in views}
        self.views.append(View(tensor, returned, "aten.alias.default", (), (), None, _NOWHERE, ""))

    def _run(self, call: Call, phase: Phase) -> None:
        for operation in call.graph.operations:
            if operation.phase is phase:
                self.operations.append(self._once(_operation(operation, call)))

    def _once(self, operation: Operation) -> Operation:
        """Let what makes something that is handed on, or returned and read, run once."""
        handed = {
            self.calls[by].prefixed(tensor)
            for call in self.calls
            for by, tensor in call.handed.values()
        }
        kept = handed.union(*map(_read_again, self.calls))
        made = {self.tensors[output].storage for output in operation.outputs if output}
        if made.isdisjoint(self.tensors[tensor].storage for tensor in kept):
            return operation
        return replace(operation, traits=operation.traits | {Trait.HANDED_ON})

    def _enter(self, call: Call, phase: Phase, at: int, order: list[str]) -> None:
        graph = call.graph
        forward = phase is Phase.FORWARD
        inputs = [i.tensor for i in _handed(graph) if i.tensor not in call.handed]
        handed = inputs if forward else _tangents(graph)
        made = [call.prefixed(tensor) for tensor in handed]
        for number, (first, _, nbytes) in enumerate(self.levels):
            if first == at:
                made.append(self._value(f"{EAGER}{number}", nbytes, phase))
        name = f"{EAGER}{call.name}.{'enter' if forward else 'd_enter'}"
        self._part(name, ENTER, phase, [], made, order)

    def _leave(self, name: str, phase: Phase, read: list[str], order: list[str]) -> None:
        name = f"{EAGER}{name}.{'leave' if phase is Phase.FORWARD else 'd_leave'}"
        self._part(name, LEAVE, phase, read, [], order)

    def _part(
        self,
        name: str,
        target: str,
        phase: Phase,
        read: list[str],
        made: list[str],
        order: list[str],
    ) -> None:
        """Add an operation behind the last one of its kind, which `order` names the mark of."""
        before = order[-1:]
        order.append(self._value(f"{name}.done", 0, phase))
        self.operations.append(
            Operation(
                name=name,
                target=target,
                args=tuple(map(Ref, dict.fromkeys([*before, *read]))),
                kwargs=(),
                outputs=(*made, order[-1]),
                single=False,
                phase=phase,
                traits=frozenset(),
                source=_NOWHERE,
                module="",  # of no layer: layers that are alike may be planned alike
                hint="eager",
            )
        )

    def _ending(self, at: int) -> list[str]:
        return [f"{EAGER}{i}" for i, (_, last, _) in enumerate(self.levels) if last == at]

    def _value(self, name: str, nbytes: int, phase: Phase) -> str:
        kind = Kind.ACTIVATION if phase is Phase.FORWARD else Kind.GRADIENT
        self.storages[name] = Storage(name, nbytes, kind)
        self.tensors[name] = Tensor(name, name, (nbytes,), (1,), 0, "uint8", self.device, "eager")
        return name


def _handed(graph: Graph) -> list[Input]:
    return [i for i in graph.inputs if i.kind is Kind.INPUT]


def _tangents(graph: Graph) -> list[str]:
    tangents = (output.tangent for output in graph.outputs if output.tangent)
    return [*dict.fromkeys(tangents)]  # what is returned twice has one


def _ends(call: Call) -> list[str]:
    """Return the tensors that a call makes and returns."""
    tensors = (output.tensor for output in call.graph.outputs if output.tensor)
    return [call.prefixed(t) for t in tensors if not call.graph.storage_of(t).kind.outside]


def _read_again(call: Call) -> list[str]:
    """Return what a call returns and reads itself: it is held until the call's backward ends."""
    graph = call.graph
    read = {storage for operation in graph.operations for storage in graph.reads(operation)}
    tensors = (output.tensor for output in graph.outputs if output.tensor)
    held = [t for t in tensors if graph.tensors[t].storage in read]
    return [call.prefixed(t) for t in held if not graph.storage_of(t).kind.outside]


def _handed_back(call: Call, *, all_of_them: bool) -> list[str]:
    """Return the gradients of what a call is handed; its parameters' leave by themselves."""
    own = {i.tensor for i in call.graph.inputs if i.kind is Kind.PARAMETER and not all_of_them}
    given = (g for g in call.graph.gradients if g.of not in own)
    return [call.prefixed(g.tensor) for g in given if g.tensor]


def common_lengths(graphs: Sequence[Graph]) -> tuple[Length, ...]:
    """Return the lengths that vary in each of the graphs, from where all are right on."""
    if len({tuple((n.name, n.maximum) for n in graph.lengths) for graph in graphs}) > 1:
        return ()
    several = zip(*(graph.lengths for graph in graphs), strict=True)
    return tuple(max(same, key=lambda n: n.minimum) for same in several)


def _operation(operation: Operation, call: Call) -> Operation:
    module = f"{call.path}.{operation.module}".rstrip(".")
    return replace(renamed(operation, call.prefixed), module=module)


def call_of(operation: str, names: Sequence[str]) -> int:
    """Return the number of the call that an operation of a joined graph is of; -1 at the start."""
    name = operation.removeprefix(EAGER)
    found = (i for i, call in enumerate(names) if name.startswith(f"{call}."))
    return next(found, -1)
