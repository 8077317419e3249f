"""What a plan's step needs with this machine's kernels, where others measured its costs.

Kernels choose their workspace by the processor and by the number of threads. A peak that is not as
predicted is right if it is what the schedule needs with the workspace measured here.
"""

from __future__ import annotations

from dataclasses import replace

from remat_gen.capture.profile.profile import profile
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.ir.errors import RematError
from remat_gen.plan.in_flight import InFlight
from remat_gen.plan.plan_names import schedule_of
from remat_gen.problem.host_copies_planned import planned_problem
from remat_gen.review.generated_module import Existing
from remat_gen.solver.law.replay import replay
from remat_gen.verification.report import Report


def with_prediction_here(report: Report, existing: Existing) -> Report:
    """Return a report that knows what its plan needs here, if the step is not as predicted.

    Of units, whose rest varies, and of modelled costs less is promised.
    """
    plan = existing.plan
    if report.as_predicted or plan.units or plan.modelled or plan.compiled:
        return report
    try:
        return replace(report, predicted_here_bytes=_predicted_here(existing))
    except RematError:  # this torch traces another graph
        return report


def _predicted_here(existing: Existing) -> int:
    """Return the peak of a plan's schedule, its operations measured on this machine."""
    plan, loaded = existing.plan, existing.load_original()
    traced = trace_loaded(loaded, plan.dynamic, plan.fixed)
    with loaded.importable():
        costs = profile(traced.graph, loaded.device, traced.examples)
    problem = planned_problem(traced.graph, replace(plan, costs=costs.operations))
    replayed = replay(problem, schedule_of(problem, plan.schedule))
    return InFlight(plan.asked.in_flight).of(replayed).peak_bytes
