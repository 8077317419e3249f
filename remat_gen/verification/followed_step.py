"""Eager's peak where no step can be measured: its own step, followed on tensors without values.

That has what no trace shows: what variables hold until forward returns, what autograd saves that
backward does not read, the temporaries of its formulas. Kernels' workspace is that of the trace's
operations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from remat_gen.capture.as_eager.causal_masks import masks_of_eager
from remat_gen.capture.as_eager.transformer_masks import looks_of_eager
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.layouts.real_layouts import layouts_of_kernels
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.load.step_context import context_of
from remat_gen.capture.observe.gradient_graph import nodes_behind
from remat_gen.capture.observe.outputs import run_on_fakes
from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.profile.memory_of_fakes import Call, FakeMemory
from remat_gen.capture.refuse.library_hooks import removed_afterwards
from remat_gen.capture.refuse.refusals import hooks_aside
from remat_gen.capture.trace.trace import Traced
from remat_gen.capture.units.unit_step import UnitStep
from remat_gen.ir.costs import Costs
from remat_gen.ir.graph import Graph, Operation, refs_in
from remat_gen.verification.fused_lstms import fused_lstms
from remat_gen.verification.step import backward_step


@dataclass(frozen=True, slots=True)
class Followed:
    """The peak of a step, and what it holds where backward begins."""

    peak_bytes: int
    retained_bytes: int


def followed(loaded: Loaded, traced: Traced, costs: Costs) -> Followed | None:
    """Follow the step that was traced.

    Return None where tensors without values do not go on; and but on the CPU, where the outcome was
    compared with what steps take: a device that is not here has other kernels.
    """
    model, kind = loaded.model, kind_of(loaded.device)
    if kind.is_accelerator or isinstance(traced, UnitStep):
        return None
    workspace = _workspace(traced.graph, costs)
    watch = FakeMemory(workspace, costs.alignment_bytes)
    aside = removed_afterwards(model), hooks_aside(model)
    kernels = layouts_of_kernels(), fused_lstms(workspace)
    try:
        with quiet(), loaded.importable(), traced.held(), contextlib.ExitStack() as stack:
            for context in (*aside, *kernels):
                stack.enter_context(context)
            return _step(model, traced, watch)
    except Exception:  # of the user's code, or a kernel that fakes lack
        return None


def _step(model: nn.Module, traced: Traced, watch: FakeMemory) -> Followed:
    args, kwargs = traced.call.args, traced.call.kwargs
    positions, masks = traced.returned.positions, traced.returned.masks
    with context_of(model), masks_of_eager(positions), looks_of_eager(masks):
        returned = run_on_fakes(model, args, kwargs, traced.looks, watch)
    retained = watch.live_bytes
    leaves = returned.tensors
    wanted = [leaves[i] for i in sorted(returned.differentiated)]
    with wanted[0].fake_mode, _gradients_there(wanted), watch:
        backward_step(wanted, model, args, kwargs)
    return Followed(watch.peak_bytes, retained)


@contextlib.contextmanager
def _gradients_there(outputs: Iterable[Tensor]) -> Iterator[None]:
    """Let the leaves behind outputs have `.grad`, as in any step but the first."""
    leaves = [n.variable for n in nodes_behind(outputs) if hasattr(n, "variable")]
    before = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = torch.empty_like(leaf)
    try:
        yield
    finally:
        for leaf, gradient in zip(leaves, before, strict=True):
            leaf.grad = gradient


def _workspace(graph: Graph, costs: Costs) -> dict[Call, int]:
    """Return what operations need inside, by what is known of them while a step runs."""
    found: dict[Call, int] = {}
    for operation in graph.operations:
        key = operation.target, tuple(_given(graph, operation))
        inside = costs.operations[operation.name].workspace_bytes
        found[key] = max(inside, found.get(key, 0))
    return found


def _given(graph: Graph, operation: Operation) -> Iterator[tuple[tuple[int, ...], str]]:
    for name in refs_in((operation.args, operation.kwargs)):
        yield graph.tensors[name].shape, graph.tensors[name].dtype
