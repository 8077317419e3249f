"""A training step that was traced and measured, and the search of its schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace

from remat_gen.ask.budget import Breakdown, Budget
from remat_gen.ask.pin_patterns import Pinned, pin
from remat_gen.ask.request import Request
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.trace.trace import Traced
from remat_gen.capture.units.unit_step import UnitStep
from remat_gen.ir.costs import Costs
from remat_gen.ir.eager_peak import EagerPeak, PeakSource
from remat_gen.ir.plan import HostCopies, Plan, Predicted
from remat_gen.plan.in_flight import InFlight, plan_in_flight
from remat_gen.plan.plan_names import committed_runs
from remat_gen.plan.planning import Planned, Search, make_plan
from remat_gen.plan.unit_plans import plan_units
from remat_gen.problem.host_copies_planned import with_host
from remat_gen.problem.smaller_problems import elsewhere_of
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.stable.committed_schedule import renamed
from remat_gen.terminal.progress import Stages


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """What was asked for, the model that was loaded for it, its trace and what operations cost.

    `breakdown` says what of the device's memory is left, where that was the limit; `copies` how
    quick the host is reached, where values may go there. `costs_reused` are those of the `old`
    plan, which stands at the output already. `eager` is what a share of eager's peak is a share of.
    """

    request: Request
    loaded: Loaded
    traced: Traced
    costs: Costs
    breakdown: Breakdown | None = None
    copies: HostCopies | None = None
    costs_reused: bool = False
    eager: EagerPeak | None = None
    old: Plan | None = None

    @property
    def limit(self) -> int:
        """Return what activations may take."""
        if self.breakdown is not None:
            return self.breakdown.activations_bytes
        assert isinstance(self.request.limit, Budget)
        return self.request.limit.resolve(self.eager.nbytes if self.eager else 0)

    def with_eager(self, replayed: Predicted) -> Predicted:
        """Return predictions with eager's peak, where that is not the replayed one."""
        match self.eager:
            case EagerPeak(nbytes, PeakSource.MEASURED):
                return replace(replayed, eager_measured_bytes=nbytes)
            case EagerPeak(nbytes, PeakSource.FOLLOWED):
                return replace(replayed, eager_followed_bytes=nbytes)
        return replayed


def plan_step(measured: MeasuredStep, stages: Stages) -> Planned:
    """Search the schedule that the request asks for, and what is compiled of it.

    Raises:
        InfeasibleBudgetError: none fits.
        UsageError: the strategy cannot search a model of this size, or a pin names nothing.
    """
    if not measured.request.compiled:
        return _search(measured, measured.costs, stages)
    from remat_gen.plan.compiling import plan_compiled

    return plan_compiled(measured, stages, lambda costs: _search(measured, costs, stages))


def _search(measured: MeasuredStep, costs: Costs, stages: Stages) -> Planned:
    """Search with costs that may be others than were measured one by one."""
    request, graph = measured.request, measured.traced.graph
    with stages("solve") as step:
        plain = problem_of(graph, costs)
        whole = with_host(plain, graph, measured.copies) if measured.copies else plain
        problem = pin(whole, graph, request.pins)
        strategy = request.strategy.value
        keeps = not (request.fresh or request.offload)  # what is sent is chosen anew
        committed, old = None, measured.old
        if keeps and old and not old.offload and old.asked.strategy == strategy:
            names = [operation.name for operation in graph.operations]
            committed = renamed(committed_runs(old.schedule), names)
        news, eager, elsewhere = stages.progress.news, measured.eager, elsewhere_of(graph, costs)
        search = Search(
            strategy, request.effort, step, news, committed, eager=eager, elsewhere=elsewhere
        )

        def within(pinned: Pinned, limit: int) -> Planned:
            if isinstance(measured.traced, UnitStep):
                return plan_units(measured.traced, pinned, limit, search)
            return make_plan(pinned, graph, limit, search)

        if request.in_flight > 1:
            flight = InFlight(request.in_flight, measured.traced.waiting_bytes)
            planned = plan_in_flight(problem, measured.limit, flight, within, elsewhere)
        else:
            planned = within(problem, measured.limit)
        stages.progress.pardon()
        return planned
