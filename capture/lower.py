"""FX joint graph to `ir.Graph`: operations, views and storages, with the user's names."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import (
    BufferAOTInput,
    GradAOTOutput,
    InputMutationAOTOutput,
    ParamAOTInput,
    PlainAOTInput,
    PlainAOTOutput,
    TangentAOTInput,
)

from remat_gen.capture import metadata, naming
from remat_gen.capture.arguments import Call
from remat_gen.capture.literals import argument
from remat_gen.capture.outputs import Leaf
from remat_gen.capture.storages import Storages, is_getitem, is_view, tensors_of
from remat_gen.ir import graph as ir
from remat_gen.ir.errors import TraceError

RNG_STATE_BYTES = {"cpu": 5056, "cuda": 16}


def lower(
    joint: torch.fx.Graph,
    call: Call,
    returned: tuple[Leaf, ...],
    model_file: str,
    strict: bool,
) -> ir.Graph:
    """Translate the joint graph of a step; `returned` are eager's outputs.

    Raises:
        TraceError: it holds what cannot be written as source: subgraphs, symbolic sizes, large
            constants.
    """
    return _Lowering(joint, call, returned, model_file, "" if strict else "model.").run()


@dataclass(slots=True)
class _Lowering:
    joint: torch.fx.Graph
    call: Call
    returned: tuple[Leaf, ...]
    model_file: str
    prefix: str  # before the names of parameters and buffers
    namer: naming.Namer = field(default_factory=naming.Namer)
    storages: Storages = field(default_factory=Storages)
    names: dict[tuple[torch.fx.Node, int], str] = field(default_factory=dict)  # of tensors
    storage_names: dict[int, str] = field(default_factory=dict)
    tensors: dict[str, ir.Tensor] = field(default_factory=dict)
    stored: dict[str, ir.Storage] = field(default_factory=dict)
    inputs: list[ir.Input] = field(default_factory=list)
    operations: list[ir.Operation] = field(default_factory=list)
    views: list[ir.View] = field(default_factory=list)
    tangents: dict[int, str] = field(default_factory=dict)
    by_path: dict[str, str] = field(default_factory=dict)  # path of an input -> its tensor
    modules: dict[str, str] = field(default_factory=dict)  # storage -> module of its operation
    geometry: dict[str, tuple[str, ...]] = field(default_factory=dict)  # chain of bases of a view

    def run(self) -> ir.Graph:
        nodes = self._live_nodes()
        naming.tag_backward(nodes)
        for node in nodes:
            if node.op == "placeholder":
                self._placeholder(node)
            elif node.op == "get_attr":
                self._read_constant(node)
            self._refuse_unstored(node)
        hints = naming.hints(nodes, self.storages, self._gradient_hints())
        for node in nodes:
            if node.op == "get_attr":
                self._constant(node)
            elif node.op == "call_function" and not is_getitem(node):
                self._view(node) if is_view(node) else self._operation(node, hints[node])
        return self._graph()

    # -- inputs ------------------------------------------------------------------------

    def _placeholder(self, node: torch.fx.Node) -> None:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return
        descriptor = node.meta["desc"]
        if isinstance(descriptor, TangentAOTInput):
            hint, module, kind, path = self._tangent(descriptor), "", ir.Kind.TANGENT, ""
        else:
            kind, path = self._place(descriptor)
            module, _, _ = path.rpartition(".") if kind is not ir.Kind.INPUT else ("", "", "")
            hint = input_hint(path)
        hint = naming.identifier(hint)
        name = self.namer.unique(module.rpartition(".")[0], hint)
        self._add_tensor(node, 0, value, name, hint, kind)
        self.storages.name(node, (hint,))
        if isinstance(descriptor, TangentAOTInput):
            self.tangents[descriptor.output.idx] = name
            return
        self.by_path[path] = name
        self.inputs.append(ir.Input(name, kind, path, requires_grad=False))

    def _tangent(self, descriptor: TangentAOTInput) -> str:
        if not isinstance(descriptor.output, PlainAOTOutput):
            raise TraceError(f"a gradient flows into {descriptor.output}, which is no output")
        return f"d_output_{descriptor.output.idx}"

    def _place(self, descriptor: Any) -> tuple[ir.Kind, str]:
        if isinstance(descriptor, ParamAOTInput):
            return ir.Kind.PARAMETER, descriptor.target.removeprefix(self.prefix)
        if isinstance(descriptor, BufferAOTInput):
            return ir.Kind.BUFFER, descriptor.target.removeprefix(self.prefix)
        if isinstance(descriptor, PlainAOTInput):
            return ir.Kind.INPUT, self.call.leaves[descriptor.idx].path
        raise TraceError(f"the trace has an input of an unknown kind: {descriptor}")

    # -- operations and views -----------------------------------------------------------

    def _operation(self, node: torch.fx.Node, hints: tuple[str, ...]) -> None:
        phase = naming.phase_of(node)
        module = self._module(node)
        name = self.namer.unique(module, hints[0])
        traits = _traits(node)
        state = None
        if ir.Trait.RANDOM in traits and phase is ir.Phase.FORWARD:
            state = self._rng_state(node, name, hints[0])
        outputs = self._outputs(node, name, module, hints, phase)
        self.modules.update((self.tensors[o].storage, module) for o in outputs if o)
        self.operations.append(
            ir.Operation(
                name=name,
                target=_target(node),
                args=self._arguments(_without_statistics(node)),
                kwargs=tuple((k, self._argument(v)) for k, v in sorted(node.kwargs.items())),
                outputs=outputs,
                single=not isinstance(node.meta["val"], tuple | list),
                phase=phase,
                traits=frozenset(traits),
                source=metadata.source_of(node, self.model_file),
                module=module,
                hint=hints[0],
                state=state,
            )
        )

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
            self._add_tensor(node, 0, value, name, hints[0], kind)
            return (name,)
        outputs: list[str | None] = [None] * len(value)
        for user in sorted((u for u in node.users if is_getitem(u) and u.users), key=_index):
            i = _index(user)
            if outputs[i] is None:
                output = name if i == 0 else self.namer.unique(module, hints[i])
                outputs[i] = output
                self._add_tensor(node, i, value[i], output, hints[i], kind)
        return tuple(outputs)

    def _module(self, node: torch.fx.Node) -> str:
        """Return the module an operation ran in; a sum of gradients: that of its last operand."""
        if metadata.module_path(node) or naming.phase_of(node) is ir.Phase.FORWARD:
            return metadata.module_path(node)
        operands = [self.tensors[self._name(n)].storage for n in node.all_input_nodes]
        return next((self.modules[s] for s in reversed(operands) if self.modules.get(s)), "")

    def _rng_state(self, node: torch.fx.Node, name: str, hint: str) -> str:
        device = tensors_of(node)[0].device
        nbytes = RNG_STATE_BYTES.get(device.type, 16)
        state, hint = f"{name}.rng", f"{hint}_rng"
        self.stored[state] = ir.Storage(state, nbytes, ir.Kind.ACTIVATION)
        self.tensors[state] = ir.Tensor(state, state, (nbytes,), (1,), 0, "uint8", "cpu", hint)
        self.operations.append(
            ir.Operation(
                name=state,
                target="remat.rng_state",
                args=(ir.Literal("device", str(device)),),
                kwargs=(),
                outputs=(state,),
                single=True,
                phase=ir.Phase.FORWARD,
                traits=frozenset(),
                source=metadata.source_of(node, self.model_file),
                module=metadata.module_path(node),
                hint=hint,
            )
        )
        return state

    def _read_constant(self, node: torch.fx.Node) -> None:
        user = next(iter(node.users), node)
        value = getattr(self.joint.owning_module, str(node.target), None)
        if not isinstance(value, torch.Tensor):
            raise TraceError(
                f"{self._where(user)}: the model cannot be traced: control flow operators "
                f"({user.target}) have no place in a plan: use torch.where"
            )
        if value.numel() > 4096:
            raise TraceError(
                f"{self._where(user)}: forward builds a constant of {value.numel()} numbers: "
                "register it as a buffer"
            )
        node.meta["value"] = value
        node.meta.setdefault("val", value)
        self.storages.name(node, ("constant",))

    def _constant(self, node: torch.fx.Node) -> None:
        value = node.meta["value"]
        name = self.namer.unique("", "constant")
        self._add_tensor(node, 0, tensors_of(node)[0], name, "constant", ir.Kind.ACTIVATION)
        dtype = ir.Literal("dtype", str(value.dtype).removeprefix("torch."))
        self.operations.append(
            ir.Operation(
                name=name,
                target="remat.constant",
                args=(argument(value.tolist(), self._name),),
                kwargs=(("device", ir.Literal("device", str(value.device))), ("dtype", dtype)),
                outputs=(name,),
                single=True,
                phase=naming.phase_of(node),
                traits=frozenset(),
                source=ir.Source("", 0, ""),
                module="",
                hint="constant",
            )
        )

    def _refuse_unstored(self, node: torch.fx.Node) -> None:
        odd = [t for t in tensors_of(node) if t.layout is not torch.strided]
        if odd:
            raise TraceError(
                f"{self._where(node)}: {node.target} makes a sparse tensor, which cannot be "
                "planned: use dense ones (sparse=False)"
            )

    def _where(self, node: torch.fx.Node) -> str:
        source = metadata.source_of(node, self.model_file)
        return f"{source.file}:{source.line}" if source.file else "forward"

    def _view(self, node: torch.fx.Node) -> None:
        base = next(n for n in node.all_input_nodes if _shares(n, node))
        value = node.meta["val"]
        parts = [(None, value)] if isinstance(value, torch.Tensor) else list(enumerate(value))
        for index, part in parts:
            name = f"{self._name(base)}:{node.name}" + ("" if index is None else f"[{index}]")
            self._add_tensor(node, index or 0, part, name, self.storages.hint(base), None)
            same = self._same_as_an_ancestor(self._name(base), name, part)
            if same:
                del self.tensors[name]
                self.names[node, index or 0] = same
                continue
            self.geometry[name] = (self._name(base), *self.geometry.get(self._name(base), ()))
            self.views.append(
                ir.View(
                    tensor=name,
                    base=self._name(base),
                    target=_target(node),
                    args=self._arguments(node.args),
                    kwargs=tuple((k, self._argument(v)) for k, v in sorted(node.kwargs.items())),
                    index=index,
                    source=metadata.source_of(node, self.model_file),
                    hint=self.storages.hint(base),
                )
            )

    def _same_as_an_ancestor(self, base: str, name: str, value: torch.Tensor) -> str:
        """Return the tensor in a chain of views that a new one equals: `t().t()` is no view."""
        if value.is_conj() or value.is_neg():
            return ""
        new = self.tensors[name]
        for ancestor in (base, *self.geometry.get(base, ())):
            old = self.tensors[ancestor]
            if _looks(old) == _looks(new):
                return ancestor
        return ""

    # -- names and arguments --------------------------------------------------------------

    def _add_tensor(
        self,
        node: torch.fx.Node,
        index: int,
        value: torch.Tensor,
        name: str,
        hint: str,
        kind: ir.Kind | None,
    ) -> None:
        key = Storages.key(value)
        if kind is not None and key not in self.storage_names:
            self.storage_names[key] = name
            self.stored[name] = ir.Storage(name, value.untyped_storage().nbytes(), kind)
        self.names[node, index] = name
        self.tensors[name] = ir.Tensor(
            name=name,
            storage=self.storage_names[key],
            shape=tuple(map(int, value.shape)),
            stride=tuple(map(int, value.stride())),
            offset=int(value.storage_offset()),
            dtype=str(value.dtype).removeprefix("torch."),
            device=str(value.device),
            hint=hint,
        )

    def _name(self, node: torch.fx.Node) -> str:
        if is_getitem(node):
            return self.names[node.args[0], _index(node)]  # type: ignore[index]
        return self.names[node, 0]

    def _argument(self, value: object) -> ir.Argument:
        return argument(value, self._name)

    def _arguments(self, values: tuple[Any, ...]) -> tuple[ir.Argument, ...]:
        return tuple(map(self._argument, values))

    # -- the step's ends -------------------------------------------------------------------

    def _ends(self) -> list[tuple[Any, Any]]:
        output = next(n for n in reversed(self.joint.nodes) if n.op == "output")
        return list(zip(output.args[0], output.meta["desc"], strict=True))

    def _gradient_hints(self) -> dict[int, str]:
        hints = {}
        for node, descriptor in self._ends():
            if isinstance(descriptor, GradAOTOutput) and isinstance(node, torch.fx.Node):
                _, path = self._place(descriptor.grad_of)
                hints[Storages.key(tensors_of(node)[0])] = naming.identifier(input_hint(path))
        return hints

    def _graph(self) -> ir.Graph:
        outputs, gradients, mutations = {}, [], []
        for node, descriptor in self._ends():
            if isinstance(descriptor, PlainAOTOutput):
                outputs[descriptor.idx] = self._output(node, descriptor.idx)
            elif isinstance(descriptor, GradAOTOutput):
                path = self._place(descriptor.grad_of)[1]
                name = self._name(node) if isinstance(node, torch.fx.Node) else None
                gradients.append(ir.Gradient(self.by_path[path], name))
            elif isinstance(descriptor, InputMutationAOTOutput):
                target = self.by_path[self._place(descriptor.mutated_input)[1]]
                mutations.append(ir.Mutation(target, self._name(node)))
            elif descriptor is not None:
                raise TraceError(f"the model returns what cannot be planned: {descriptor}")
        if len(outputs) != len(self.returned):
            raise TraceError("the trace does not return what the model returns")
        for i, leaf in enumerate(self.returned):
            if leaf.same_as is not None:
                outputs[i] = outputs[leaf.same_as]
        self._name_tangents(outputs)
        differentiated = {gradient.of for gradient in gradients}
        graph = ir.Graph(
            inputs=tuple(replace(i, requires_grad=i.tensor in differentiated) for i in self.inputs),
            operations=tuple(sorted(self.operations, key=lambda o: o.phase is ir.Phase.BACKWARD)),
            views=tuple(self.views),
            tensors=self.tensors,
            storages=self.stored,
            outputs=tuple(outputs[i] for i in sorted(outputs)),
            gradients=tuple(gradients),
            mutations=tuple(mutations),
        )
        return ir.verify(graph)

    def _name_tangents(self, outputs: dict[int, ir.Output]) -> None:
        """Call each incoming gradient after its output: `d_loss`."""
        for output in outputs.values():
            if output.tensor and output.tangent:
                hint = f"d_{self.tensors[output.tensor].hint}"
                self.tensors[output.tangent] = replace(self.tensors[output.tangent], hint=hint)

    def _output(self, node: Any, index: int) -> ir.Output:
        if not isinstance(node, torch.fx.Node):
            return ir.Output(None, argument(node, self._name), None, False)
        tangent, requires_grad = self.tangents.get(index), self.returned[index].requires_grad
        return ir.Output(self._name(_behind(node)), None, tangent, requires_grad)

    def _live_nodes(self) -> list[torch.fx.Node]:
        """Return the nodes that the step needs: a dead random operation still moves the stream."""
        live: set[torch.fx.Node] = set()
        for node in reversed(self.joint.nodes):
            if node.op == "output":
                live.update(_behind(n) for n in node.all_input_nodes)
            elif node in live or node.op == "placeholder" or _is_random(node):
                live.add(node)
                live.update(node.all_input_nodes)
        return [n for n in self.joint.nodes if n in live]


def input_hint(path: str) -> str:
    """Return the short name of an input: `qkv_weight` of `h.0.attn.qkv.weight`."""
    parts = path.split(".")
    owner = 3 if len(parts) > 2 and parts[-2].isdigit() else 2
    return "_".join(parts[-owner:])


def _behind(node: torch.fx.Node) -> torch.fx.Node:
    """Return what an output was before tracing put a clone or a detach in front of it."""
    separated = node.target in (torch.ops.aten.clone.default, torch.ops.aten.detach.default)
    return node.args[0] if separated else node  # type: ignore[return-value]


def _is_random(node: torch.fx.Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags and not _never_drops(node)


def _never_drops(node: torch.fx.Node) -> bool:
    """Tell whether a random operation draws nothing: attention with a dropout of 0."""
    names = [a.name for a in node.target._schema.arguments]  # type: ignore[union-attr]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    return given.get("dropout_p", 0.0 if "dropout_p" in names else None) == 0.0


def _traits(node: torch.fx.Node) -> set[ir.Trait]:
    return {ir.Trait.RANDOM} if _is_random(node) else set()


def _target(node: torch.fx.Node) -> str:
    if not isinstance(node.target, torch._ops.OpOverload):
        raise TraceError(f"the trace calls {node.target}, which cannot be written as source")
    return str(node.target)


def _without_statistics(node: torch.fx.Node) -> tuple[Any, ...]:
    """Return the arguments of a node, without the running statistics that training does not read.

    The trace hands them to BatchNorm's backward, which would keep them alive until then.
    """
    if node.target is torch.ops.aten.native_batch_norm_backward.default and node.args[7]:
        return (*node.args[:3], None, None, *node.args[5:])
    return node.args


def _index(node: torch.fx.Node) -> int:
    return int(node.args[1])  # type: ignore[call-overload, no-any-return]


def _shares(base: torch.fx.Node, view: torch.fx.Node) -> bool:
    keys = {Storages.key(v) for v in tensors_of(view)}
    return any(Storages.key(v) in keys for v in tensors_of(base))


def _looks(tensor: ir.Tensor) -> tuple[object, ...]:
    return (tensor.storage, tensor.shape, tensor.stride, tensor.offset, tensor.dtype)
