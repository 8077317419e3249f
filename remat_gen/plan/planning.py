"""From a problem and a budget to a schedule that was replayed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from remat_gen.ask.pin_patterns import Pinned
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.lower.shorter_steps import lengths_to_look_at
from remat_gen.ir.byte_text import size
from remat_gen.ir.costs import Costs
from remat_gen.ir.eager_peak import EagerPeak, PeakSource
from remat_gen.ir.errors import InfeasibleBudgetError
from remat_gen.ir.fingerprint import graph_sha256
from remat_gen.ir.graph import Graph
from remat_gen.ir.plan import Plan
from remat_gen.plan.fusion import Fusion
from remat_gen.solver.all_sizes import AllSizesSolver, Elsewhere
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import Replay, replay
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.law.search_types import Effort, News
from remat_gen.solver.offload.offload_solver import OffloadSolver
from remat_gen.solver.solve import InfeasibleError, Peak, Solution, Solver
from remat_gen.solver.stable.committed_schedule import Committed
from remat_gen.terminal.progress import Step

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Search:
    """How a schedule is searched, and what hears of it; one to keep where it is about as good.

    `alike`: layers are planned alike where that is about as good. `eager` is what shares of
    eager's peak are of, where not of the predicted one. Schedules must fit `elsewhere`, too.
    """

    strategy: str
    effort: Effort
    progress: Step
    news: News | None = None
    committed: Committed | None = None
    alike: bool = True
    eager: EagerPeak | None = None
    elsewhere: tuple[Elsewhere, ...] = ()

    def solver(self, problem: Problem) -> AllSizesSolver | OffloadSolver:
        """Return the search of a problem, which may have a host."""
        reruns = AllSizesSolver(self._one(problem), self.elsewhere, self._one)
        return OffloadSolver(problem, reruns, self.elsewhere) if problem.link else reruns

    def _one(self, problem: Problem) -> Solver:
        return Solver(
            problem,
            self.strategy,
            self.progress,
            self.effort,
            self.news,
            self.committed,
            alike=self.alike,
        )


@dataclass(frozen=True, slots=True)
class Planned:
    """A problem and its solution within `budget_bytes`; `without_grads` starts without `.grad`.

    `highest` is the solution's peak at the lengths where it is the highest. `fusion` has what is
    compiled of it, with figures of its own.
    """

    pinned: Pinned
    solution: Solution
    highest: Peak
    budget_bytes: int
    without_grads: Replay
    fusion: Fusion | None = None

    @property
    def replay(self) -> Replay:
        """Return the figures of the step, with its compiled parts if it has any."""
        return self.fusion.replay if self.fusion else self.solution.replay

    @property
    def problem(self) -> Problem:
        """Return the problem that was solved."""
        return self.pinned.problem

    @property
    def schedule(self) -> Schedule:
        """Return the schedule that is emitted."""
        return self.solution.schedule


def make_plan(pinned: Pinned, graph: Graph, budget: int, search: Search) -> Planned:
    """Solve a problem, with its pins, within a budget.

    Raises:
        InfeasibleBudgetError: no schedule of the strategy fits, with the smallest budget that one
            would fit and the user's line that sets it; it says so where the pins are to blame.
    """
    problem = pinned.problem
    solver = search.solver(problem)
    eager = search.eager or EagerPeak(solver.plain.peak_bytes, PeakSource.PREDICTED)
    try:
        found = solver.solve(budget)
    except InfeasibleError as error:
        blame = _blame(pinned, budget, search) if pinned.pins else ""
        raise _infeasible(graph, error, budget, eager, blame) from error
    without = replay(problem, found.solution.schedule, keep_gradients=True)
    return Planned(pinned, found.solution, found.peak, budget, without)


def _blame(pinned: Pinned, budget_bytes: int, search: Search) -> str:
    """Say whether the budget would be feasible without the pins."""
    try:
        replace(search, news=None).solver(pinned.unpinned).solve(budget_bytes)
    except InfeasibleError:
        return " (nor does any without the pins)"
    return f" with these pins: {pinned}; without them one does"


def _infeasible(
    graph: Graph, error: InfeasibleError, budget_bytes: int, eager: EagerPeak, blame: str
) -> InfeasibleBudgetError:
    operation = graph.operations[error.operation_index]
    source = operation.source
    place = f"{operation.name} ({operation.target})"
    if source.file:
        place = f"{source.file}:{source.line}: {operation.name} ({source.text.strip()})"
    if error.where:
        place += (
            f", which needs more memory at {error.where} than at the example's sizes; --static "
            "plans for those alone"
        )
    share = math.ceil(10 * eager.share(error.smallest_bytes)) / 10  # one that can be asked for
    what = "no schedule" if error.proved else f"no schedule of strategy {error.strategy}"
    message = (
        f"{what} fits {size(budget_bytes)}{blame}; the smallest budget found feasible "
        f"for {error.strategy} is {error.smallest_bytes} bytes "
        f"({size(error.smallest_bytes)}, {share:.1f}% of {eager}), set by {place}"
    )
    return InfeasibleBudgetError(message, error.smallest_bytes, error.strategy, operation.name)


def torch_version() -> str:
    """Return torch's version without the build, so that `2.13.0+cpu` is `2.13.0`.

    Another one traces otherwise, and its kernels take other workspace.
    """
    import torch

    return str(torch.__version__).partition("+")[0]


def is_of_here(plan: Plan, device: torch.device) -> bool:
    """Tell whether a plan's costs were measured on such a device, with this torch."""
    here = plan.device == kind_of(device).name(device) and plan.modelled is None
    return here and plan.versions.torch == torch_version()


def known_costs(plan: Plan | None, graph: Graph, device: torch.device) -> Costs | None:
    """Return the costs of an existing plan, if it is of the same graph, shapes, device and torch.

    Costs that were modelled are none to re-use: modelling them again takes no time.
    """
    if plan is None or not is_of_here(plan, device):
        return None
    same = plan.graph_sha256 == graph_sha256(graph)
    complete = all(operation.name in plan.costs for operation in graph.operations)
    measured_at = {there.lengths for cost in plan.costs.values() for there in cost.smaller}
    known = measured_at <= set(lengths_to_look_at(graph))  # a pinned graph has none
    return plan.measured() if same and complete and known else None
