"""Which values of a step may go to the host, and how quick copies are."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.profile.calibrate import copy_start_us, host_bytes_per_s
from remat_gen.capture.profile.targets import find_target
from remat_gen.ir.errors import UsageError
from remat_gen.ir.graph import Graph, Phase, Storage, Tensor
from remat_gen.ir.plan import HostCopies, Plan
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.law.problem import Held, HostLink, Problem

LARGE = 64  # what part of the largest value is worth a copy of its own


def host_copies(device: torch.device, target: str, old: Plan | None) -> HostCopies:
    """Return how quick copies are: of a target, of the plan that is there, or measured now.

    Raises:
        UsageError: the target does not say.
    """
    if target:
        hardware = find_target(target)
        if not hardware.host_bytes_per_s:
            raise UsageError(
                f"--offload: target {target} has no host_bytes_per_s; `remat-gen calibrate` "
                "writes it"
            )
        return HostCopies(hardware.host_bytes_per_s, hardware.launch_us)
    if old is not None and old.offload and old.device == kind_of(device).name(device):
        return old.offload
    return HostCopies(host_bytes_per_s(device), copy_start_us(device))


def with_host(problem: Problem, graph: Graph, copies: HostCopies) -> Problem:
    """Return the problem in which large values of forward may travel.

    Storages travel as a whole, where one tensor is all of them; views of them do not.
    """
    made = {
        graph.storage_of(o).name: graph.tensors[o]
        for operation in graph.operations
        if operation.phase is Phase.FORWARD
        for o in operation.outputs
        if o and _is_all(graph.tensors[o], graph.storage_of(o))
    }
    outside = {name for name, t in made.items() if _elsewhere(graph, t)}
    least = max((v.nbytes for v in problem.values), default=0) / LARGE
    values = tuple(
        replace(
            value,
            travels=value.name in made.keys() - outside
            and value.held is Held.FREE
            and value.nbytes >= max(1, least),
        )
        for value in problem.values
    )
    link = HostLink(copies.bytes_per_s / 1e6, copies.start_us)
    return replace(problem, values=values, link=link)


def planned_problem(graph: Graph, plan: Plan) -> Problem:
    """Return the problem that a plan is a solution of, without its pins.

    Raises:
        GraphError: an operation has no cost.
    """
    problem = problem_of(graph, plan.measured())
    return with_host(problem, graph, plan.offload) if plan.offload else problem


def _is_all(tensor: Tensor, storage: Storage) -> bool:
    """Tell whether a tensor is all of its storage, each element once: a copy gives it back."""
    itemsize = getattr(torch, tensor.dtype).itemsize
    if tensor.offset or math.prod(tensor.shape) * itemsize != storage.nbytes:
        return False
    expected = 1
    for stride, size in sorted(zip(tensor.stride, tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _elsewhere(graph: Graph, tensor: Tensor) -> bool:
    """Tell whether a tensor of a step on a GPU lies on the host anyway."""
    kinds = {kind_of(t.device) for t in graph.tensors.values()}
    return any(k.is_accelerator for k in kinds) and not kind_of(tensor.device).is_accelerator
