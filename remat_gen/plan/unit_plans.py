"""Plan a step of units: one search over all of them, then what each unit runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from remat_gen.ask.pin_patterns import Pinned
from remat_gen.capture.units.unit_kinds import Kind
from remat_gen.capture.units.unit_step import UnitStep
from remat_gen.codegen.units.unit_classes import UnitProgram
from remat_gen.ir.byte_text import size
from remat_gen.ir.errors import InfeasibleBudgetError
from remat_gen.plan.planning import Planned, Search, make_plan
from remat_gen.solver.all_sizes import Elsewhere, highest_peak
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import Replay, replay
from remat_gen.solver.law.schedule import Schedule
from remat_gen.units.unit_programs import UnitRuns, unit_runs, unit_schedule, within_units

_ROUNDS = 6  # of searches within less, by what the schedule put in order was over the budget


def plan_units(step: UnitStep, pinned: Pinned, limit: int, search: Search) -> Planned:
    """Solve the problem of a joined step, and put all runs of a unit into its own call.

    Raises:
        InfeasibleBudgetError: no schedule fits.
        UsageError: the strategy cannot search a model of this size.
    """
    planned = make_plan(pinned, step.graph, limit, search)
    budget = within = planned.budget_bytes
    before = 0
    for _ in range(_ROUNDS):
        ordered = _in_units(step, planned, search.elsewhere)
        peak = ordered.highest.nbytes
        if peak <= budget:
            return replace(ordered, budget_bytes=budget)
        if peak == before:  # a few bytes less are no other schedule: less than this one needs is
            within = min(within, planned.highest.nbytes)
        within, before = within - (peak - budget), peak
        try:
            planned = make_plan(pinned, step.graph, within, search)
        except InfeasibleBudgetError as error:
            raise _over(step, ordered, budget) from error
    raise _over(step, ordered, budget)


def _over(step: UnitStep, planned: Planned, budget: int) -> InfeasibleBudgetError:
    """Say that schedules fit until their re-runs are put into the units' own calls."""
    peak, strategy = planned.highest, planned.solution.strategy
    message = (
        f"no schedule was found whose re-runs stay inside units and that fits {size(budget)}; "
        f"the last one needs {peak.nbytes} bytes ({size(peak.nbytes)})"
    )
    at = step.graph.operations[peak.operation].name
    return InfeasibleBudgetError(message, peak.nbytes, strategy, at)


def _in_units(step: UnitStep, planned: Planned, elsewhere: Sequence[Elsewhere]) -> Planned:
    problem, solution = planned.problem, planned.solution
    schedule = within_units(step, problem, solution.schedule)
    figures = replay(problem, schedule)
    return replace(
        planned,
        solution=replace(solution, schedule=schedule, replay=figures),
        highest=highest_peak(figures, schedule, elsewhere),
        without_grads=replay(problem, schedule, keep_gradients=True),
    )


def programs_of(
    step: UnitStep, problem: Problem, schedule: Schedule
) -> list[tuple[Kind, list[UnitProgram]]]:
    """Return what units run, by kind: those that run the same share a program."""
    runs = unit_runs(step, problem, schedule)
    found = []
    for kind in step.kinds:
        alike: dict[UnitRuns, list[str]] = {}
        for path in kind.paths:
            alike.setdefault(runs[path], []).append(path)
        own = [
            UnitProgram(tuple(paths), *unit_schedule(kind, problem, paths[0], run))
            for run, paths in alike.items()
        ]
        found.append((kind, own))
    return found


def planned_share(step: UnitStep, problem: Problem, eager: Replay) -> float:
    """Return what share of the bytes that eager's step holds where backward begins units hold."""
    turn = max(m.resident for m in eager.timeline if not problem.operations[m.operation].backward)
    between = step.eager.held_bytes[len(step.calls)]
    return max(0.0, 1 - between / turn) if turn else 0.0
