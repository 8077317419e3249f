"""Graph and costs to the scheduling problem: the same operations, in plain numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.lower.eager_nodes import filled, saved_unread
from remat_gen.capture.lower.signature import signature
from remat_gen.capture.units.joined import ENTER, LEAVE
from remat_gen.codegen.statements.written_over import written_over
from remat_gen.ir.costs import Cost, Costs
from remat_gen.ir.errors import GraphError, TraceError
from remat_gen.ir.graph import CHECK, Graph, Kind, Operation, Phase, Trait
from remat_gen.solver.law import problem as plain

_BATCH_NORMS = (
    "aten._native_batch_norm_legit_functional.default",
    "remat.cudnn_batch_norm.default",
)
_SUMS_UP = "aten.add.Tensor"  # mostly what autograd adds up, behind a node
_ONCE = frozenset(("remat.rng_state", CHECK, ENTER, LEAVE))


def problem_of(graph: Graph, costs: Costs) -> plain.Problem:
    """Translate a graph; operations keep their indices, and what the step allocates its order.

    Raises:
        GraphError: an operation has no cost.
        TraceError: backward reads a buffer that forward has overwritten by then.
    """
    inside = [name for name, storage in graph.storages.items() if not storage.kind.outside]
    index, host = {name: i for i, name in enumerate(inside)}, _on_host(graph)
    for operation in graph.operations:
        if operation.name not in costs.operations:  # of a plan that was edited
            raise GraphError(f"{operation.name} has no cost")
    bound = {operation.name: costs.operations[operation.name] for operation in graph.operations}
    if costs.launch_bound:  # the host's times add up to the step's, whatever the device's are
        bound = {n: replace(c, time_us=c.host_us or c.time_us) for n, c in bound.items()}
    held, leaving, unit = _held(graph), _leaving(graph), costs.alignment_bytes
    mutated = {graph.tensors[m.target].storage for m in graph.mutations}
    over = {name: index[storage] for name, storage in written_over(graph, held).items()}
    fills = {name: index[storage] for name, storage in filled(graph).items()}
    keeps = {o: tuple(index[s] for s in found) for o, found in _kept_by(graph, leaving).items()}
    saved: dict[int | None, tuple[int, ...]] = {
        node: (index[s],) for node, s in saved_unread(graph).items() if s in index
    }
    operations = (
        _operation(graph, operation, bound[operation.name], index, mutated)
        for operation in graph.operations
    )
    return plain.Problem(
        operations=tuple(
            replace(
                o,
                over=over.get(o.name),
                saved=saved.get(o.node, ()),
                fills=fills.get(o.name),
                keeps=keeps.get(o.name, ()),
            )
            for o in operations
        ),
        values=tuple(
            plain.Value(
                name,
                0 if name in host else -(-graph.storages[name].nbytes // unit) * unit,
                held.get(name, plain.Held.FREE),
                leaves=name in leaving,
            )
            for name in index
        ),
        given=tuple(i for name, i in index.items() if graph.storages[name].kind is Kind.TANGENT),
        layers=graph.layers,
    )


def _on_host(graph: Graph) -> frozenset[str]:
    """Return the storages that a step on a GPU has on the CPU: seeds, masks made there."""
    on = {tensor.storage: tensor.device for tensor in graph.tensors.values()}
    if not any(kind_of(device).is_accelerator for device in on.values()):
        return frozenset()
    return frozenset(name for name, device in on.items() if device == "cpu")


def _operation(
    graph: Graph, operation: Operation, cost: Cost, index: dict[str, int], mutated: set[str]
) -> plain.Operation:
    reads = graph.reads(operation)
    stale = mutated.intersection(reads)
    backward = operation.phase is Phase.BACKWARD
    if backward and stale:
        where = f"{operation.source.file}:{operation.source.line}"
        raise TraceError(f"{where}: backward needs a buffer that forward overwrites")
    # a re-run of a random operation holds the generator's present state besides; first runs do not
    # hold it, and counting it there as well errs to the safe side, by 5056 bytes
    state_bytes = graph.storages[operation.state].nbytes if operation.state else 0
    return plain.Operation(
        name=operation.name,
        time_us=cost.time_us,
        workspace_bytes=cost.workspace_bytes + state_bytes,
        inputs=tuple(index[s] for s in reads if s in index),
        outputs=tuple(index[s] for s in graph.writes(operation) if s in index),
        backward=backward,
        rerunnable=not backward and _rerunnable(graph, operation, bool(stale)),
        signature=signature(graph, operation),
        layer=graph.layers.of(operation.module),
        ordered=backward and (Trait.RANDOM in operation.traits or _updates(graph, operation)),
        outside=backward and operation.target == LEAVE,
        node=operation.node if backward and operation.target != _SUMS_UP else None,
    )


def _rerunnable(graph: Graph, operation: Operation, reads_stale: bool) -> bool:
    """Tell whether a second run gives the first one's values, and leaves nothing changed.

    BatchNorm is run again without its running statistics: same output, nothing updated.
    """
    if operation.target in _BATCH_NORMS:
        return Trait.HANDED_ON not in operation.traits
    once = operation.target in _ONCE or Trait.HANDED_ON in operation.traits
    return not (once or reads_stale or _updates(graph, operation))


def _updates(graph: Graph, operation: Operation) -> bool:
    """Tell whether one of an operation's results is written back into a buffer or an input."""
    writes = {m.tensor for m in graph.mutations}
    return any(output in writes for output in operation.outputs)


def _held(graph: Graph) -> dict[str, plain.Held]:
    held = {
        graph.tensors[g.tensor].storage: plain.Held.SEGMENT for g in graph.gradients if g.tensor
    }
    for output in graph.outputs:
        if output.tangent:
            tangent = graph.tensors[output.tangent]
            # the one that `loss.backward()` makes is held by its caller until backward is done
            scalar = tangent.shape == ()
            held[tangent.storage] = plain.Held.STEP if scalar else plain.Held.SEGMENT
        if output.tensor:
            held[graph.tensors[output.tensor].storage] = plain.Held.STEP
    return held


def _leaving(graph: Graph) -> frozenset[str]:
    """Return the storages that are a parameter's gradient and nothing else."""
    parameters = {i.tensor for i in graph.inputs if i.kind is Kind.PARAMETER}
    given = [(g.of, graph.tensors[g.tensor].storage) for g in graph.gradients if g.tensor]
    times = Counter(storage for _, storage in given)
    read = {storage for operation in graph.operations for storage in graph.reads(operation)}
    made = {s for of, s in given if of in parameters and graph.storages[s].kind is Kind.GRADIENT}
    return frozenset(s for s in made - read if times[s] == 1)


def _kept_by(graph: Graph, leaving: frozenset[str]) -> dict[str, list[str]]:
    """Return by operation the gradients, which leave, of the parameters that it reads."""
    given = [(g.of, graph.tensors[g.tensor].storage) for g in graph.gradients if g.tensor]
    of = {graph.tensors[p].storage: made for p, made in given if made in leaving}
    return {o.name: [of[s] for s in graph.reads(o) if s in of] for o in graph.operations}
