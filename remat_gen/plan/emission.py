"""From a schedule to the plan file and the text of the module."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from remat_gen import __version__
from remat_gen.ask.budget import Budget
from remat_gen.ask.request import Request, default_output, relative
from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.trace.trace import Traced
from remat_gen.capture.units.unit_step import UnitStep
from remat_gen.codegen.module.emit_module import Target, emit_body
from remat_gen.codegen.module.file_header import with_header
from remat_gen.codegen.module.guards import dims_of, varying_shape
from remat_gen.codegen.units.emit_units import emit_units
from remat_gen.ir.costs import Costs
from remat_gen.ir.fingerprint import graph_sha256
from remat_gen.ir.graph import Graph, Kind
from remat_gen.ir.plan import (
    SCHEMA,
    Asked,
    Modelled,
    Plan,
    PlannedRung,
    PlannedUnits,
    Predicted,
    Solver,
    SourceFile,
    Versions,
)
from remat_gen.plan.fusion import planned_parts
from remat_gen.plan.plan_names import blocks_of, planned_schedule, programs_of_rungs
from remat_gen.plan.planning import torch_version
from remat_gen.plan.unit_plans import planned_share, programs_of
from remat_gen.problem.smaller_problems import elsewhere_of
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.law.sums import added

if TYPE_CHECKING:
    from remat_gen.plan.measured_step import MeasuredStep
    from remat_gen.plan.planning import Planned
    from remat_gen.solver.solve import Solution


def describe(measured: MeasuredStep, planned: Planned, rungs: tuple[PlannedRung, ...] = ()) -> Plan:
    """Return the plan of a module that is about to be emitted."""
    request, loaded, costs = measured.request, measured.loaded, measured.costs
    graph, modelled = measured.traced.graph, None
    if request.target:
        there = loaded.stands_for or AbsentDevice(loaded.device.type)
        modelled = Modelled(request.target_word, there.kind, there.capability)
    output = request.output or default_output(request.model_file)
    solution = planned.solution
    return Plan(
        schema=SCHEMA,
        versions=Versions(__version__, torch_version(), version("z3-solver"), version("ruff")),
        source=SourceFile(relative(request.model_file, output.parent), loaded.source_sha256),
        asked=_asked(request, planned),
        device=costs.device,
        alignment_bytes=costs.alignment_bytes,
        graph_sha256=graph_sha256(graph),
        inputs=_shapes(graph),
        dynamic=measured.traced.dynamic,
        keep=request.pins.keep,
        recompute=request.pins.recompute,
        costs=dict(costs.operations),
        modelled=modelled,
        blocks=blocks_of(graph, planned.problem, planned.schedule),
        schedule=planned_schedule(planned.problem, planned.schedule),
        solver=solver_of(solution),
        predicted=measured.with_eager(predicted_of(planned, costs)),
        compiled=planned.fusion.compiled if planned.fusion else None,
        offload=measured.copies,
        units=_units(measured, planned),
        rungs=rungs,
        fixed=request.fix,
    )


def _units(measured: MeasuredStep, planned: Planned) -> PlannedUnits | None:
    step = measured.traced
    if not isinstance(step, UnitStep):
        return None
    share = planned_share(step, planned.problem, planned.solution.eager)
    static = not step.graph.lengths
    held, fsdp = step.eager.held_bytes, measured.request.fsdp
    return PlannedUnits(step.patterns, held, round(share, 4), static, str(fsdp))


def solver_of(solution: Solution) -> Solver:
    """Return what the plan says of the search."""
    return Solver(
        strategy=solution.strategy,
        proved=solution.proved,
        notes=solution.notes,
        status=solution.status.value,
        lower_bound_us=round(solution.lower_bound_us, 3),
    )


def _asked(request: Request, planned: Planned) -> Asked:
    limit = request.limit
    return Asked(
        command=request.command(),
        model=request.model,
        inputs=request.inputs,
        device=request.device,
        strategy=request.strategy.value,
        budget=limit.text if isinstance(limit, Budget) else f"device memory {limit.text}",
        budget_bytes=planned.budget_bytes,
        live=request.live,
        batch=request.batch,
        in_flight=request.in_flight,
        captured=request.captured,
    )


def _shapes(graph: Graph) -> dict[str, str]:
    tensors = {i.path: graph.tensors[i.tensor] for i in graph.inputs if i.kind is Kind.INPUT}
    return {
        path: f"{t.dtype}[{', '.join(varying_shape(t.shape, dims_of(path, graph.lengths)))}]"
        for path, t in tensors.items()
    }


def predicted_of(planned: Planned, costs: Costs) -> Predicted:
    """Return what the plan says of the step."""
    without = planned.fusion.without_grads if planned.fusion else planned.without_grads
    sent = planned.solution.replay.travelled
    return Predicted(
        peak_bytes=planned.replay.peak_bytes,
        peak_bytes_without_grads=without.peak_bytes,
        time_us=round(max(planned.replay.time_us, _other_us(planned, costs)), 3),
        eager_peak_bytes=planned.solution.eager.peak_bytes,
        eager_time_us=round(planned.solution.eager.time_us, 3),
        reruns=len(planned.replay.reruns),
        highest_bytes=planned.highest.nbytes if planned.highest.where else 0,
        highest_at=planned.highest.where,
        sent_values=len(sent),
        sent_bytes=sum(planned.problem.values[v].nbytes for v in sent),
        waits_us=round(planned.solution.replay.waits_us, 3),
    )


def _other_us(planned: Planned, costs: Costs) -> float:
    """Return how long a step keeps the one of host and device busy that eager does not wait for.

    Re-runs may be short on the device and long on the host. Parts that are compiled have no times
    of both, and a captured step is launched as one.
    """
    if planned.fusion or costs.captured:
        return 0.0
    which = "time_us" if costs.launch_bound else "host_us"
    operations = planned.problem.operations
    again = (operations[p] for p in planned.replay.reruns)
    names = (operation.name for operation in (*operations, *again))
    return added(getattr(costs.operations[name], which) for name in names)


def module_text(
    loaded: Loaded,
    traced: Traced,
    problem: Problem,
    schedule: Schedule,
    plan: Plan,
    output: Path,
) -> str:
    """Return the generated module; all of it follows from the source, the trace and the plan.

    Raises:
        GraphError: the plan compiles parts, and has no cost of one of them.
    """
    target = Target(
        source=loaded.source,
        namespace=vars(loaded.module),
        model=(isinstance(traced, UnitStep) and traced.model) or loaded.model,
        builder=loaded.builder,
        output=output,
        command=plan.asked.command,
        device=loaded.device.type,
    )
    if isinstance(traced, UnitStep):
        body = emit_units(target, traced, programs_of(traced, problem, schedule))
        return with_header(body, plan, len(problem.operations), map(str, traced.left_out))
    problems = [problem]
    if plan.compiled:
        problems += [e.problem for e in elsewhere_of(traced.graph, plan.measured())]
    budget_bytes = plan.asked.budget_bytes
    parts = planned_parts(traced.graph, problems, schedule, plan.compiled, budget_bytes)
    rungs = programs_of_rungs(traced.graph, plan, problem)
    with traced.held():
        body = emit_body(target, traced, problem, schedule, parts, rungs)
    return with_header(body, plan, len(problem.operations), map(str, traced.left_out))
