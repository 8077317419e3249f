"""FX joint graph to `ir.Graph`: operations, views and storages, with the user's names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import torch

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.fx import metadata
from remat_gen.capture.fx.literals import argument
from remat_gen.capture.fx.nodes import (
    behind,
    copies_storage,
    live_nodes,
    position,
    shares,
    target_of,
    traits_of,
    without_statistics,
)
from remat_gen.capture.fx.storages import Storages, is_getitem, is_view, tensors_of
from remat_gen.capture.fx.symbolic_sizes import Sizes
from remat_gen.capture.fx.turns import tell_turns
from remat_gen.capture.load.arguments import Call
from remat_gen.capture.lower import naming
from remat_gen.capture.lower.constants import made_fake, tidied
from remat_gen.capture.lower.eager_nodes import saves_unread
from remat_gen.capture.lower.made_operations import make_constant, record_generator
from remat_gen.capture.lower.running_statistics import returned_where_read, written_as_they_are
from remat_gen.capture.lower.step_ends import End, Ends, Place
from remat_gen.capture.lower.tensors import TensorTable
from remat_gen.capture.lower.value_checks import with_checks
from remat_gen.capture.lower.written_outputs import WrittenOutputs
from remat_gen.capture.observe.outputs import Leaf
from remat_gen.capture.refuse.untraceable import (
    constant_of,
    refuse_effects,
    refuse_sparse,
    refuse_unknown_shape,
    refuse_writes_in_backward,
    where_sizes_are_read,
)
from remat_gen.capture.values.looks import Look
from remat_gen.ir import graph as ir
from remat_gen.ir.errors import TraceError, UnwrittenSizeError
from remat_gen.ir.size import Length


def lower(
    joint: torch.fx.Graph,
    call: Call,
    returned: tuple[Leaf, ...],
    model_file: str,
    strict: bool,
    sizes: Sizes | None = None,
    looks: tuple[Look, ...] = (),
    attributes: Mapping[int, str] = MappingProxyType({}),
    calls: Mapping[str, int] = MappingProxyType({}),
) -> ir.Graph:
    """Translate the joint graph of a step; `returned` are eager's outputs.

    The outputs behind those are what `looks` looked at: each step compares them. Tensors that the
    model has in `attributes` (paths by identity) are read there. `calls` is how often each module
    was called.

    Raises:
        TraceError: it holds what cannot be written as source: subgraphs, arithmetic on sizes,
            large constants.
    """
    prefix = "" if strict else "model."
    tidied(joint, attributes, prefix)
    ends = Ends(joint, call, prefix, model_file)
    table = TensorTable(sizes)
    return _Lowering(joint, ends, returned, model_file, looks, calls, table=table).run()


@dataclass(slots=True)
class _Lowering:
    joint: torch.fx.Graph
    ends: Ends
    returned: tuple[Leaf, ...]
    model_file: str
    looks: tuple[Look, ...] = ()
    calls: Mapping[str, int] = field(default_factory=dict)
    namer: naming.Namer = field(default_factory=naming.Namer)
    table: TensorTable = field(default_factory=TensorTable)
    storages: Storages = field(default_factory=Storages)
    inputs: list[ir.Input] = field(default_factory=list)
    operations: list[ir.Operation] = field(default_factory=list)
    views: list[ir.View] = field(default_factory=list)
    tangents: dict[int, str] = field(default_factory=dict)
    by_place: dict[Place, str] = field(default_factory=dict)  # of an input -> its tensor
    autograd_nodes: dict[int, int] = field(default_factory=dict)
    parents: frozenset[str] = frozenset()  # paths of modules that have others with tensors in them

    def run(self) -> ir.Graph:
        refuse_writes_in_backward(self.joint, lambda node: self.ends.place(node)[1])
        written_as_they_are(self.joint)
        returned_where_read(self.joint)
        nodes = live_nodes(self.joint)
        refuse_effects(nodes, self.model_file)
        naming.tag_backward(nodes)
        tell_turns(*naming.by_phase(nodes), self.calls)
        self.parents = frozenset(self._parents(nodes))
        for node in nodes:
            if node.op != "placeholder" or node.users:
                refuse_sparse(node, self.model_file)
            if node.op == "placeholder":
                self._placeholder(node)
            elif node.op == "get_attr":
                self._read_constant(node)
            refuse_unknown_shape(node, self.model_file)
        ends = self._hints_of(self.ends.gradients()), self._hints_of(self._written())
        hints = naming.hints(nodes, self.storages, *ends)
        for node in nodes:
            if node.op == "get_attr":
                self._constant(node)
            elif node.op == "call_function" and not is_getitem(node):
                with where_sizes_are_read(node, self.model_file):
                    self._view(node) if is_view(node) else self._operation(node, hints[node])
        return self._graph()

    # -- inputs ------------------------------------------------------------------------

    def _parents(self, nodes: list[torch.fx.Node]) -> Iterator[str]:
        for node in nodes:
            if _is_tensor_input(node) and self.ends.output_of(node) is None:
                *owners, _ = self.ends.place(node)[1].split(".")
                yield from (".".join(owners[:count]) for count in range(1, len(owners)))

    def _placeholder(self, node: torch.fx.Node) -> None:
        if not _is_tensor_input(node):
            return
        value = node.meta["val"]
        output = self.ends.output_of(node)
        if output is not None:
            hint = f"d_output_{output}"
            module, kind, path = "", ir.Kind.TANGENT, ""
        else:
            kind, path = self.ends.place(node)
            module, _, _ = path.rpartition(".") if kind is not ir.Kind.INPUT else ("", "", "")
            hint = input_hint(path, self.parents)
        hint = naming.identifier(hint)
        owner, _, last = module.rpartition(".")  # the last is in the hint, unless it is an index
        name = self.namer.unique(module if last.isdigit() else owner, hint)
        self.table.add(node, 0, value, name, hint, kind)
        self.storages.name(node, (hint,))
        if output is not None:
            self.tangents[output] = name
            return
        self.by_place[kind, path] = name
        self.inputs.append(ir.Input(name, kind, path, requires_grad=False))

    # -- operations and views -----------------------------------------------------------

    def _operation(self, node: torch.fx.Node, hints: tuple[str, ...]) -> None:
        phase = naming.phase_of(node)
        module = self._module(node)
        hint = naming.first_made(hints)
        name = self.namer.unique(module, hint, naming.made_by(node, self.storages))
        traits = traits_of(node)
        state = None
        if ir.Trait.RANDOM in traits and phase is ir.Phase.FORWARD:
            state = self._rng_state(node, name, hint)
        outputs = self._outputs(node, name, module, hints, phase)
        self.table.modules.update((self.table.tensors[o].storage, module) for o in outputs if o)
        self.operations.append(
            ir.Operation(
                name=name,
                target=target_of(node, self.model_file),
                args=self.table.arguments(without_statistics(node)),
                kwargs=self.table.keywords(node.kwargs),
                outputs=outputs,
                single=not isinstance(node.meta["val"], tuple | list),
                phase=phase,
                traits=frozenset(traits),
                source=metadata.source_of(node, self.model_file),
                module=module,
                hint=hint,
                state=state,
                node=self._autograd_node(node, phase),
            )
        )

    def _autograd_node(self, node: torch.fx.Node, phase: ir.Phase) -> int | None:
        """Return the number of its node of autograd: torch's own go on from trace to trace."""
        number = node.meta.get("seq_nr")
        if number is None or (
            phase is ir.Phase.FORWARD and not saves_unread(target_of(node, self.model_file))
        ):
            return None
        return self.autograd_nodes.setdefault(number, len(self.autograd_nodes))

    def _outputs(
        self,
        node: torch.fx.Node,
        name: str,
        module: str,
        hints: tuple[str, ...],
        phase: ir.Phase,
    ) -> tuple[str | None, ...]:
        kind = ir.Kind.ACTIVATION if phase is ir.Phase.FORWARD else ir.Kind.GRADIENT
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            nbytes = self._copied_bytes(node) if copies_storage(node) else None
            self.table.add(node, 0, value, name, hints[0], kind, nbytes)
            return (name,)
        if isinstance(value, torch.SymBool):
            raise UnwrittenSizeError("what is computed depends on several comparisons of lengths")
        outputs: list[str | None] = [None] * len(value)
        of = naming.made_by(node, self.storages)
        for user in sorted((u for u in node.users if is_getitem(u) and u.users), key=position):
            i = position(user)
            if outputs[i] is None:
                output = (
                    name
                    if i == hints.index(naming.first_made(hints))
                    else self.namer.unique(module, hints[i], of)
                )
                outputs[i] = output
                self.table.add(node, i, value[i], output, hints[i], kind)
        return tuple(outputs)

    def _copied_bytes(self, node: torch.fx.Node) -> int:
        """Return the bytes of a copy of a tensor's whole storage."""
        copied = self.table.name(node.all_input_nodes[0])
        return self.table.stored[self.table.tensors[copied].storage].nbytes

    def _module(self, node: torch.fx.Node) -> str:
        """Return the module an operation ran in; a sum of gradients: that of its last operand."""
        if metadata.module_path(node) or naming.phase_of(node) is ir.Phase.FORWARD:
            return metadata.module_path(node)
        operands = [self.table.tensors[self.table.name(n)].storage for n in node.all_input_nodes]
        return next(
            (self.table.modules[s] for s in reversed(operands) if self.table.modules.get(s)), ""
        )

    def _rng_state(self, node: torch.fx.Node, name: str, hint: str) -> str:
        device = tensors_of(node)[0].device
        nbytes = kind_of(device).rng_state_bytes
        state, hint = f"{name}.rng", f"{hint}_rng"
        self.table.stored[state] = ir.Storage(state, nbytes, ir.Kind.ACTIVATION)
        self.table.tensors[state] = ir.Tensor(
            state, state, (nbytes,), (1,), 0, "uint8", "cpu", hint
        )
        self.operations.append(record_generator(node, state, hint, device, self.model_file))
        return state

    def _read_constant(self, node: torch.fx.Node) -> None:
        node.meta["value"] = constant_of(node, self.joint, self.model_file)
        made_fake(node, node.meta["value"])
        self.storages.name(node, ("constant",))

    def _constant(self, node: torch.fx.Node) -> None:
        value = node.meta["value"]
        reader = next(iter(node.users), node)  # constants have no place of their own
        name = self.namer.unique(metadata.module_path(reader), "constant")
        self.table.add(node, 0, tensors_of(node)[0], name, "constant", ir.Kind.ACTIVATION)
        numbers = argument(value.tolist(), self.table.name)
        made = make_constant(node, reader, name, value, numbers, self.model_file)
        self.operations.append(made)

    def _view(self, node: torch.fx.Node) -> None:
        base = next(n for n in node.all_input_nodes if shares(n, node))
        value = node.meta["val"]
        parts = [(None, value)] if isinstance(value, torch.Tensor) else list(enumerate(value))
        called = self.namer.of_view(self.table.name(base), node)
        for index, part in parts:
            name = called if index is None else f"{called}[{index}]"
            self.table.add(node, index or 0, part, name, self.storages.hint(base), None)
            same = self.table.same_as_an_ancestor(self.table.name(base), name)
            if same:
                del self.table.tensors[name]
                self.table.layouts.pop(name, None)
                self.table.names[node, index or 0] = same
                continue
            self.table.geometry[name] = (
                self.table.name(base),
                *self.table.geometry.get(self.table.name(base), ()),
            )
            self.views.append(
                ir.View(
                    tensor=name,
                    base=self.table.name(base),
                    target=target_of(node, self.model_file),
                    args=self.table.arguments(node.args),
                    kwargs=self.table.keywords(node.kwargs),
                    index=index,
                    source=metadata.source_of(node, self.model_file),
                    hint=self.storages.hint(base),
                )
            )

    # -- the step's ends -------------------------------------------------------------------

    def _hints_of(self, ends: Iterable[tuple[Place, End]]) -> dict[int, str]:
        """Return by the storage of each end the hint of the input that it belongs to."""
        return {
            Storages.key(tensors_of(end)[0]): naming.identifier(input_hint(path, self.parents))
            for (_, path), end in ends
            if isinstance(end, torch.fx.Node)
        }

    def _written(self) -> Iterator[tuple[Place, End]]:
        """Yield what is written into buffers and inputs, or what the copy is made of that is."""
        for place, end in self.ends.mutations():
            while isinstance(end, torch.fx.Node) and is_view(end):
                end = end.all_input_nodes[0]
            if isinstance(end, torch.fx.Node) and end.target is torch.ops.aten.copy.default:
                end = end.args[1]
            yield place, end

    def _graph(self) -> ir.Graph:
        self.ends.refuse_others()
        leaving = dict(self.ends.outputs())
        count = len(self.returned)
        if len(leaving) != count + len(self.looks):
            raise TraceError("the trace does not return what the model returns")
        outputs = {i: self._output(end, i) for i, end in leaving.items() if i < count}
        mutations = {self.by_place[p]: self.table.name(end) for p, end in self.ends.mutations()}
        ours = WrittenOutputs(self.table, self.views, mutations)
        for i, leaf in enumerate(self.returned):
            if leaf.same_as is not None:
                outputs[i] = outputs[leaf.same_as]
            elif (written := self._given(leaf)) in mutations and not leaf.requires_grad:
                outputs[i] = ir.Output(written, None, None, False)  # itself, not what was written
            elif mutations and leaf.outside and not leaf.requires_grad:
                outputs[i] = ours.itself(outputs[i], i)
        self._name_tangents(outputs)
        gradients = tuple(self._gradients())
        differentiated = {gradient.of for gradient in gradients}
        graph = ir.Graph(
            inputs=tuple(replace(i, requires_grad=i.tensor in differentiated) for i in self.inputs),
            operations=tuple(sorted(self.operations, key=lambda o: o.phase is ir.Phase.BACKWARD)),
            views=tuple(self.views),
            tensors=self.table.tensors,
            storages=self.table.stored,
            outputs=tuple(outputs[i] for i in sorted(outputs)),
            gradients=gradients,
            mutations=tuple(ir.Mutation(target, tensor) for target, tensor in mutations.items()),
            lengths=self._lengths(),
            layouts=self.table.layouts,
        )
        looked_at = [self.table.name(behind(leaving[count + i])) for i in range(len(self.looks))]
        return ir.verify(with_checks(graph, zip(looked_at, self.looks, strict=True)))

    def _given(self, leaf: Leaf) -> str | None:
        """Return the buffer or argument that an output is itself, if it is one."""
        if isinstance(leaf.given, int):
            return self.by_place.get((ir.Kind.INPUT, self.ends.call.leaves[leaf.given].path))
        return self.by_place.get((ir.Kind.BUFFER, leaf.given)) if leaf.given else None

    def _gradients(self) -> Iterator[ir.Gradient]:
        for place, end in self.ends.gradients():
            name = self.table.name(end) if isinstance(end, torch.fx.Node) else None
            yield ir.Gradient(self.by_place[place], name)

    def _lengths(self) -> tuple[Length, ...]:
        return tuple(self.table.sizes.lengths.values()) if self.table.sizes else ()

    def _name_tangents(self, outputs: dict[int, ir.Output]) -> None:
        """Call each incoming gradient after its output: `d_loss`."""
        for output in outputs.values():
            if output.tensor and output.tangent:
                kept = output.kept.rpartition(".")[2]
                hint = kept and naming.identifier(kept)
                hint = f"d_{hint or self.table.tensors[output.tensor].hint}"
                self.table.tensors[output.tangent] = replace(
                    self.table.tensors[output.tangent], hint=hint
                )

    def _output(self, end: End, index: int) -> ir.Output:
        if not isinstance(end, torch.fx.Node):
            return ir.Output(None, self.table.argument(end), None, False)
        tangent = self.tangents.get(index)
        leaf, tensor = self.returned[index], self.table.name(behind(end))
        return ir.Output(tensor, None, tangent, leaf.requires_grad, leaf.read_on, leaf.kept)


def _is_tensor_input(node: torch.fx.Node) -> bool:
    """Tell whether a node is a parameter, a buffer or an input; not a sparse one that is unread."""
    value = node.meta.get("val")
    if node.op != "placeholder" or not isinstance(value, torch.Tensor):
        return False
    return value.layout is torch.strided or bool(node.users)


def input_hint(path: str, parents: Collection[str] = ()) -> str:
    """Return the short name of an input: `qkv_weight` of `h.0.attn.qkv.weight`.

    Numbers need the name before them, `mlp_0_weight`; but what a layer itself has beside modules of
    its own, as one of the `parents`, needs none: `gamma` of `h.0.gamma`.
    """
    *owners, name = path.split(".")
    if owners and owners[-1].isdigit() and ".".join(owners) in parents:
        return name
    count = next((n for n, part in enumerate(reversed(owners), 1) if not part.isdigit()), 0)
    return "_".join([*owners[-count:], name]) if count else name
