"""Trace a training step at full size on fake tensors, and model its costs: nothing is allocated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.load.arguments import describe_call
from remat_gen.capture.load.without_values import without_values
from remat_gen.capture.lower.lower import lower
from remat_gen.capture.observe.outputs import Leaf
from remat_gen.capture.profile.roofline import Rates, roofline_us
from remat_gen.capture.trace.joint import TraceOptions, trace_joint
from remat_gen.ir.costs import Cost, Costs
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.law.problem import Held, Problem

ALIGNMENT_BYTES = 512  # as CUDA's caching allocator rounds


def fake_problem(
    build: Callable[[], nn.Module],
    inputs: Callable[[], tuple[Tensor, ...]],
    rates: Rates,
    dtype: torch.dtype = torch.float32,
) -> Problem:
    """Return the scheduling problem of one training step of a model with one output.

    Times are those of the roofline; operations have no workspace.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with without_values():
            model, args = build(), inputs()
            scalar = model(*args).ndim == 0
            call = describe_call(model, args, {})
        joint = trace_joint(
            model,
            call.args,
            call.kwargs,
            frozenset({0}),
            options=TraceOptions(AbsentDevice("cuda")),
        )
    finally:
        torch.set_default_dtype(before)
    leaf = Leaf(requires_grad=True, scalar=scalar, outside=False, same_as=None)
    graph = lower(joint.graph_module.graph, call, (leaf,), "", joint.strict)
    times = {o.name: Cost(roofline_us(graph, o, rates), 0, True) for o in graph.operations}
    return problem_of(graph, Costs("roofline", times, ALIGNMENT_BYTES))


def gradient_outside(problem: Problem) -> Problem:
    """Return the problem whose incoming gradients are the caller's: they take no bytes of it."""
    values = list(problem.values)
    for v in problem.given:
        values[v] = replace(values[v], nbytes=0)
    return replace(problem, values=tuple(values))


def retained_bytes(problem: Problem) -> int:
    """Return what is resident between forward and backward if everything is retained.

    That is every value of forward that backward reads, and the step's outputs; the incoming
    gradient is not among them.
    """
    forward = problem.forward_count
    read = {v for operation in problem.operations[forward:] for v in operation.inputs}
    made = [v for operation in problem.operations[:forward] for v in operation.outputs]
    kept = [v for v in made if v in read or problem.values[v].held is not Held.FREE]
    return sum(problem.values[v].nbytes for v in kept)
