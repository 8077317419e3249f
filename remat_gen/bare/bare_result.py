"""Solve a bare graph for the command line, and say what was found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from remat_gen.ask.budget import parse_budget
from remat_gen.bare.graph_file import read_instance
from remat_gen.ir.byte_text import size
from remat_gen.ir.errors import InfeasibleBudgetError
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Run, Schedule
from remat_gen.solver.law.search_types import INTERRUPTED, Effort
from remat_gen.solver.solve import InfeasibleError, Solution, Solver, Status
from remat_gen.terminal.interrupt import Interruptible
from remat_gen.terminal.printing import word_table

_NAMED_AT_MOST = 40  # nodes that run again


@dataclass(frozen=True, slots=True)
class BareResult:
    """What was asked, and what was found, or why nothing was.

    The smallest budget is looked for where nothing was found: that may take longer than the rest.
    """

    solver: Solver
    budget_text: str
    budget_bytes: int
    solution: Solution | None = None
    failure: InfeasibleError | None = None


def solve_graph(
    path: Path, budget_text: str, strategy: str, effort: Effort, progress: Interruptible
) -> BareResult:
    """Read a graph and schedule it.

    Raises:
        UsageError: the budget is none, or the file holds no graph.
    """
    budget = parse_budget(budget_text)
    graph = read_instance(path)
    solver = Solver(graph, strategy, progress.stage("solve"), effort, progress.news)
    budget_bytes = budget.resolve(solver.plain.peak_bytes)
    asked = (solver, budget.text, budget_bytes)
    try:
        solution = solver.solve(budget_bytes)
        progress.pardon()
    except InfeasibleError as error:
        return BareResult(*asked, failure=error)
    return BareResult(*asked, solution)


def infeasible(result: BareResult) -> InfeasibleBudgetError:
    """Return the error that says so, with the smallest budget and what sets it."""
    assert result.failure is not None
    solver, nbytes = result.solver, result.failure.smallest_bytes
    share = 100 * nbytes / max(solver.plain.peak_bytes, 1)
    node = solver.problem.operations[result.failure.operation_index].name
    of = "" if result.failure.proved else f" of strategy {solver.strategy}"
    return InfeasibleBudgetError(
        f"no schedule{of} fits {size(result.budget_bytes)}; the smallest budget found feasible for "
        f"{solver.strategy} is {nbytes} bytes ({size(nbytes)}, {share:.1f}% of the plain peak), "
        f"set by node {node!r}",
        nbytes,
        solver.strategy,
        node,
    )


def result_json(result: BareResult) -> dict[str, Any]:
    """Return the result for programs; what does not exist is null."""
    found = result.solution
    return {
        "status": found.status.value if found else "infeasible",
        "time": _plain_number(found.replay.time_us) if found else None,
        "time_ratio": _ratio(result, found) if found else None,
        "peak_bytes": found.replay.peak_bytes if found else None,
        "lower_bound": _plain_number(found.lower_bound_us) if found else None,
        "min_budget": result.failure.smallest_bytes if result.failure else None,
        "schedule": _steps(result.solver.problem, found.schedule) if found else None,
        "budget_bytes": result.budget_bytes,
        "plain_peak_bytes": result.solver.plain.peak_bytes,
        "plain_time": _plain_number(result.solver.plain.time_us),
        "gap": round(found.gap, 9) if found else None,
        "strategy": found.strategy if found else result.solver.strategy,
        "interrupted": bool(found and found.interrupted),
        "notes": list(found.notes) if found else [],
    }


def _ratio(result: BareResult, found: Solution) -> float:
    return (
        found.replay.time_us / result.solver.plain.time_us if result.solver.plain.time_us else 1.0
    )


def _plain_number(value: float) -> float:
    return int(value) if value.is_integer() else value


def _steps(problem: Problem, schedule: Schedule) -> list[list[str]]:
    return [
        ["run", problem.operations[step.operation].name]
        if isinstance(step, Run)
        else ["free", problem.values[step.value].name]
        for segment in schedule.segments
        for step in segment.steps
    ]


def result_table(result: BareResult) -> Table:
    """Return the result for people."""
    return word_table(_lines(result))


def _lines(result: BareResult) -> list[tuple[str, str]]:
    found, plain = result.solution, result.solver.plain
    assert found is not None
    share = 100 * result.budget_bytes / max(plain.peak_bytes, 1)
    asked = f" ({result.budget_text})" if not result.budget_text.isdigit() else ""
    notes = [note for note in found.notes if note != INTERRUPTED]
    reruns = len(found.replay.reruns)
    again = f"{reruns} {'node runs' if reruns == 1 else 'nodes run'}"
    bound = f"no schedule takes less than {found.lower_bound_us:g}: gap {100 * found.gap:.2f}%"
    if found.status is Status.OPTIMAL:
        bound = "no schedule takes less: proved"
    lines = [
        ("budget", f"{size(result.budget_bytes)}, {share:.1f}% of the plain peak{asked}"),
        ("peak", f"{size(found.replay.peak_bytes)} planned, {size(plain.peak_bytes)} plain"),
        (
            "time",
            f"{found.replay.time_us:g} planned, {plain.time_us:g} plain: "
            f"× {_ratio(result, found):.4f}, {again} again",
        ),
        ("bound", bound),
        ("solver", "; ".join([found.strategy, found.status.value, *notes])),
    ]
    if reruns:
        lines.append(("run again", _named(result.solver.problem, found.replay.reruns)))
    return lines


def _named(problem: Problem, reruns: tuple[int, ...]) -> str:
    counts = Counter(reruns)
    names = []
    for p, count in counts.items():
        name = problem.operations[p].name
        names.append((name if name.isprintable() else repr(name)) + f" ×{count}" * (count > 1))
    more = len(names) - _NAMED_AT_MOST
    shown = ", ".join(names[:_NAMED_AT_MOST])
    return shown + f" and {more} more (--json has the schedule)" * (more > 0)
