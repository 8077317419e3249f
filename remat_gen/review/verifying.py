"""Run a generated module that lies in a folder beside its original, and compare them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from torch import nn

from remat_gen.capture.load.load import Loaded, import_file, load, read_source
from remat_gen.capture.process.copies import copied_with
from remat_gen.capture.profile.profile import profile
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.capture.units.computed_precision import computing_in
from remat_gen.capture.units.fully_sharded import as_used
from remat_gen.capture.units.patterns import find_units
from remat_gen.capture.units.sharding import NOT_SHARDED, parse_sharding
from remat_gen.ir.errors import RematError, StalePlanError
from remat_gen.ir.plan import Plan
from remat_gen.plan.in_flight import InFlight
from remat_gen.plan.output import plan_path
from remat_gen.plan.plan_names import schedule_of
from remat_gen.problem.host_copies_planned import planned_problem
from remat_gen.review.generated_module import OTHER_PLAN, Existing
from remat_gen.solver.law.replay import replay
from remat_gen.terminal.progress import Step
from remat_gen.verification.compare import Comparison, compare_built
from remat_gen.verification.compare_models import AsUsed, verify_models
from remat_gen.verification.report import Report
from remat_gen.verification.smaller_batch import SmallerStep, longest_step, smaller_step

_BUILDS = 8  # of the original, where the planned one is built otherwise


def verify_file(
    path: Path, *, time_steps: int = 0, given: Loaded | None = None, progress: Step | None = None
) -> Report:
    """Run a generated module and its original, and compare all that a step leaves behind.

    Raises:
        RematError: one of them cannot be loaded, the original changed, or the plan is another one.
    """
    existing = Existing.find(path, given)
    if existing.has_other_plan:
        command = existing.plan.asked.command
        raise StalePlanError(f"{plan_path(path)} {OTHER_PLAN}; run: {command}")
    original = existing.load_original()
    if given is not None:  # the caller's own is not trained here
        copies = copied_with(original.model, (original.model, original.args, original.kwargs))
        model, args, kwargs = copies
        original = replace(original, model=model, args=args, kwargs=kwargs)
    planned = _planned(existing, original)
    unlike = _built_otherwise(existing, original, planned)
    used, computed = _as_planned(existing.plan, original)
    with original.importable():
        report = verify_models(
            original.model,
            planned,
            original.args,
            original.kwargs,
            device=original.device,
            predicted_peak_bytes=existing.plan.predicted.peak_bytes,
            modelled=existing.absent,
            varies=existing.plan.units is not None,
            budget_bytes=existing.plan.asked.budget_bytes,
            smaller=_smaller_steps(existing.plan, original, planned),
            time_steps=time_steps,
            progress=progress,
            as_used=used,
            as_computed=computed,
            in_flight=existing.plan.asked.in_flight,
        )
    report = replace(report, comparisons=(*report.comparisons, *unlike))
    return _with_prediction_here(report, existing)


def _built_otherwise(
    existing: Existing, original: Loaded, planned: nn.Module
) -> tuple[Comparison, ...]:
    """Return what the planned model's builder makes otherwise, if the original repeats itself.

    The comparison of steps gives both the same numbers.
    """
    unlike = compare_built(original.model, planned)
    if not unlike or existing.given is not None:
        return ()
    again = (existing.load_original().model for _ in range(_BUILDS))  # LAPACK's last bits vary
    moving = {c.name for model in again for c in compare_built(original.model, model)}
    return tuple(c for c in unlike if c.name not in moving)


def _as_planned(plan: Plan, original: Loaded) -> tuple[AsUsed, AsUsed]:
    """Return how a model is used whose peak is measured, and how it computes that is compared.

    That is sharded, and as FSDP2 lets it, where it was planned so.
    """
    sharding = parse_sharding(plan.units.fsdp) if plan.units else NOT_SHARDED
    paths = find_units(original.model, plan.units.patterns) if plan.units else {}
    return (
        lambda model: as_used(model, paths, sharding, original.device),
        lambda model: computing_in(model, paths, sharding.parameters),
    )


def _smaller_steps(plan: Plan, original: Loaded, planned: nn.Module) -> list[SmallerStep]:
    """Return the smaller steps that are run as well: of about half, the longest of each rung."""
    step = (original.model, original.args, original.kwargs)
    fewer = [smaller_step(*step, plan.dynamic, _planned_lengths(planned))] if plan.dynamic else []
    return [*fewer, *(longest_step(*step, plan.dynamic, rung) for rung in plan.rungs)]


def _planned_lengths(planned: nn.Module) -> list[range]:
    """Return the lengths that the planned class's file names, if it does.

    A root of units is of another module, which may be gone, and the name may be the user's.
    """
    found = getattr(sys.modules.get(type(planned).__module__), "LENGTHS", {})
    return [r for r in found.values() if isinstance(r, range)] if isinstance(found, dict) else []


def _planned(existing: Existing, original: Loaded) -> nn.Module:
    """Return the planned model; of one that was handed over, a copy that becomes the planned class.

    Raises:
        UsageError: the generated file does not build it.
    """
    if existing.given is None:
        asked = existing.plan.asked
        return load(existing.path, original.builder, asked.inputs, existing.device).model
    with original.importable():
        module = import_file(existing.path, read_source(existing.path))
    planned = copied_with(original.model, original.model)
    planned.__class__ = getattr(module, original.model_name)
    return planned


def _with_prediction_here(report: Report, existing: Existing) -> Report:
    """Return a report that knows what its plan needs here, if the step is not as predicted.

    Kernels choose their workspace by the processor and by the number of threads. A peak that is not
    as predicted is right if it is what the schedule needs with the workspace measured here. Of
    units, whose rest varies, and of modelled costs less is promised.
    """
    plan = existing.plan
    if report.as_predicted or plan.units or plan.modelled or plan.compiled:
        return report
    try:
        loaded = existing.load_original()
        traced = trace_loaded(loaded, plan.dynamic, plan.fixed)
        with loaded.importable():
            costs = profile(traced.graph, loaded.device, traced.examples)
        problem = planned_problem(traced.graph, replace(plan, costs=costs.operations))
        replayed = replay(problem, schedule_of(problem, plan.schedule))
    except RematError:  # this torch traces another graph
        return report
    peak_bytes = InFlight(plan.asked.in_flight).of(replayed).peak_bytes
    return replace(report, predicted_here_bytes=peak_bytes)
