"""What a traced graph tells that a plan would do wrongly."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import torch
from torch import Tensor, nn

from remat_gen.capture.process.operands import storage_of
from remat_gen.ir.errors import TraceError
from remat_gen.ir.graph import Graph, Kind, Phase, Trait


def refuse_written(graph: Graph, fixed: Container[str]) -> None:
    """Refuse a step that writes into an input that is the same in each step."""
    written = {mutation.target for mutation in graph.mutations}
    for given in graph.inputs:
        if given.kind is Kind.INPUT and given.tensor in written and given.path in fixed:
            raise TraceError(
                f"forward writes into {given.path}, which --fix says is the same in each step: "
                "let it write into a copy, or leave out --fix"
            )


_ANYWHERE = ("all_reduce", "broadcast", "wait_tensor")  # whose results are as large in any group


def refuse_operations(graph: Graph) -> None:
    """Refuse collectives that a plan has with the size of the group in which it was made.

    And a backward that draws where a gradient may come into some of several outputs alone: eager
    draws only for what one came into, and a plan in each step, so that the stream would move.
    """
    several = _may_lack_gradients(graph)
    for operation in graph.operations:
        source, reason = operation.source, ""
        namespace, name, *_ = operation.target.split(".")
        if several and operation.phase is Phase.BACKWARD:
            reason = (
                "backward draws random numbers, and not in a step in which this output gets no "
                "gradient: draw them in forward, or return the loss alone"
            ) * (Trait.RANDOM in operation.traits)
        if "c10d" in namespace and not name.startswith(_ANYWHERE):
            reason = (
                f"{name} has size and name of a process group, and a plan has those of the group "
                "it was made in: let the model around planned units call it (--units)"
            )
        if reason:
            raise TraceError(f"{source.file}:{source.line}: {source.text}: {reason}")


def _may_lack_gradients(graph: Graph) -> bool:
    """Tell whether a gradient may come into some of several outputs alone."""
    return len({output.tangent for output in graph.outputs if output.tangent}) > 1


def refuse_buffers_as_constants(
    model: nn.Module, graph: Graph, nodes: torch.fx.Graph, attributes: Iterable[Tensor]
) -> None:
    """Refuse numbers written out that are a buffer's: what backward reads of the model is none.

    `attributes` are tensors that forward read beside the buffers, whose numbers are compared at
    each step: these may be parts of a buffer that nothing writes into.

    Raises:
        TraceError: one is read in backward alone, or written into.
    """
    owners = _owners(model.named_buffers())
    constants = [n.meta["value"] for n in nodes.find_nodes(op="get_attr") if "value" in n.meta]
    compared = {storage_of(t) for t in attributes}
    written = {mutation.target for mutation in graph.mutations}
    changing = {given.path for given in graph.inputs if given.tensor in written}
    for name in (owners[m] for m in map(storage_of, constants) if m in owners.keys() - compared):
        raise TraceError(
            f"backward reads the buffer self.{name} from the model, as a hook or an autograd "
            f"function may: read it in forward, as in `{name.rpartition('.')[2]} = self.{name}`, "
            "and let backward use that"
        )
    for memory in compared & owners.keys():
        if owners[memory] in changing:
            raise TraceError(
                f"forward writes into self.{owners[memory]}, and reads another attribute that has "
                "its memory: read that part of the buffer in forward"
            )


def refuse_unmaterialised(graph: Graph, *, asked: bool) -> None:
    """Refuse functions that tell gradients that do not come, where one may not come.

    Raises:
        TraceError: they are `asked` for, and there are several outputs.
    """
    if asked and _may_lack_gradients(graph):
        raise TraceError(
            "an autograd function sets set_materialize_grads(False), and of several outputs some "
            "may get no gradient: what its backward does then is not planned: return the loss "
            "alone, or leave that out"
        )


def refuse_shared(model: nn.Module, attributes: Mapping[str, Tensor]) -> None:
    """Refuse plain attributes that are parts of a parameter or buffer: these may be written."""
    buffers = dict(model.named_buffers())
    owners = _owners((*model.named_parameters(), *buffers.items()))
    for path, tensor in attributes.items():
        if storage_of(tensor) in owners:
            owner = owners[storage_of(tensor)]
            whole = owner in buffers and buffers[owner].shape == tensor.shape
            instead = ", or register it as a buffer there, too" if whole else ""
            raise TraceError(
                f"forward reads self.{path}, which has the memory of self.{owner}: read that one "
                f"in forward{instead}"
            )


def _owners(named: Iterable[tuple[str, Tensor]]) -> dict[int | None, str]:
    """Return the name of the dense tensor that has each memory."""
    return {storage_of(t): name for name, t in named if t.layout is torch.strided}
