"""Model and example inputs to the graph of one training step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from remat_gen.capture.arguments import Call, describe_call
from remat_gen.capture.joint import Joint, trace_joint
from remat_gen.capture.library_hooks import has_library_hooks, removed_afterwards
from remat_gen.capture.lower import lower
from remat_gen.capture.outputs import Returned, run_for_real, run_on_fakes
from remat_gen.capture.quiet import quiet
from remat_gen.capture.refusals import refuse_hooks, refuse_recurrent_dropout, refuse_replaced
from remat_gen.capture.side_effects import refused_side_effects
from remat_gen.ir.errors import TraceError
from remat_gen.ir.graph import Graph, Kind


@dataclass(frozen=True, slots=True)
class Traced:
    """A traced step: its graph, its call, what it returned, and the example's own tensors.

    `hooked` where the forward puts hooks of its library on submodules.
    """

    graph: Graph
    call: Call
    returned: Returned
    examples: Mapping[str, torch.Tensor]
    strict: bool
    hooked: bool = False


def trace(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    source_file: Path | None = None,
) -> Traced:
    """Trace one training step of `model(*args, **kwargs)`.

    Raises:
        TraceError: the model cannot be traced, with the user's line and the reason.
    """
    refuse_hooks(model)
    refuse_recurrent_dropout(model)
    call = describe_call(model, args, kwargs)
    with removed_afterwards(model):
        returned = _returned(model, call)
        refuse_replaced(returned.replaced)
        joint = trace_joint(model, call.args, call.kwargs, returned.differentiated)
        hooked = has_library_hooks(model)
    file = str(source_file.resolve()) if source_file else ""
    graph = lower(joint.graph_module.graph, call, returned.leaves, file, joint.strict)
    if not any(output.tangent for output in graph.outputs):
        raise TraceError("no output of the model requires grad: there is no backward to plan")
    return Traced(graph, call, returned, _examples(graph, call), joint.strict, hooked)


def _returned(model: nn.Module, call: Call) -> Returned:
    with refused_side_effects(model):
        try:
            with quiet():
                returned = run_on_fakes(model, call.args, call.kwargs)
        except Exception as error:  # of the user's code, or fake tensors lack a kernel
            _refuse(model, call, error)
            returned = run_for_real(model, call.args, call.kwargs)
    return returned


def _refuse(model: nn.Module, call: Call, error: Exception) -> None:
    """Raise with the tracer's reason, unless the tracer accepts what fake tensors do not."""
    try:
        trace_joint(model, call.args, call.kwargs, differentiated=frozenset())
    except TraceError as refused:
        raise refused from error


def _examples(graph: Graph, call: Call) -> dict[str, torch.Tensor]:
    leaves = {leaf.path: leaf.value for leaf in call.leaves}
    return {i.tensor: leaves[i.path] for i in graph.inputs if i.kind is Kind.INPUT}


__all__ = ["Joint", "Traced", "trace"]
