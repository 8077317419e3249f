"""Several steps at once, as the micro-batches of a pipeline: all but one wait for their backward.

With n of them in flight the peak is that of one and n - 1 times what a step retains where backward
begins. For a given bound on what is retained that is a problem like any other: its budget is what
the waiting steps leave, and the first operation of backward has as much more workspace as lets no
more than the bound be resident there. So bounds are tried, each solved by the same search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from remat_gen.ask.pin_patterns import Pinned
from remat_gen.ir.errors import InfeasibleBudgetError
from remat_gen.plan.planning import Planned
from remat_gen.solver.all_sizes import Elsewhere, highest_peak
from remat_gen.solver.law.replay import Replay, replay
from remat_gen.solver.solve import Solver, Status

_ROUNDS = 4
_LOWER = 0.6  # of a bound that nothing fits is tried: more room for what is run again


@dataclass(frozen=True, slots=True)
class InFlight:
    """How many steps are in flight; each one that waits holds `besides_bytes` that no graph has."""

    steps: int
    besides_bytes: int = 0

    def of(self, figures: Replay) -> Replay:
        """Return the figures of a step with the peak of all that are in flight."""
        waiting = (self.steps - 1) * (figures.retained_bytes + self.besides_bytes)
        return replace(figures, peak_bytes=figures.peak_bytes + waiting)

    def bound(self, figures: Replay, budget: int) -> int:
        """Return what each may retain if it needs as much beyond that as these figures say."""
        passing = figures.peak_bytes - figures.retained_bytes
        return (budget - passing - (self.steps - 1) * self.besides_bytes) // self.steps

    def own(self, retained: int, budget: int) -> int:
        """Return what is left for one step where the others retain so much."""
        return budget - (self.steps - 1) * (max(0, retained) + self.besides_bytes)


def plan_in_flight(
    pinned: Pinned,
    budget: int,
    flight: InFlight,
    search: Callable[[Pinned, int], Planned],
    elsewhere: Sequence[Elsewhere] = (),
) -> Planned:
    """Search a schedule that keeps several steps in flight within a budget, `elsewhere`, too.

    Raises:
        InfeasibleBudgetError: none was found.
    """
    eager = Solver(pinned.problem, "none").plain
    found: list[Planned] = []
    retained, failed = flight.bound(eager, budget), False
    for _ in range(_ROUNDS):
        own = flight.own(retained, budget)
        try:
            planned = search(_bounded(pinned, own, retained), own)
        except InfeasibleBudgetError as error:
            if found:
                break
            if failed:  # it takes long to know
                raise _infeasible(error, budget, flight.steps) from error
            retained, failed = int(retained * _LOWER), True
            continue
        planned = _judged(pinned, planned, budget, flight, elsewhere)
        if planned.highest.nbytes <= budget:
            found.append(planned)
        better = flight.bound(replay(pinned.problem, planned.schedule), budget)
        if better == retained:
            break
        retained = better
    if not found:
        raise _infeasible(None, budget, flight.steps)
    return min(found, key=lambda planned: planned.solution.replay.time_us)


def _bounded(pinned: Pinned, budget: int, retained: int) -> Pinned:
    """Let no more be resident where backward begins, by workspace of its first operation."""
    problem = pinned.problem
    first = next(p for p, operation in enumerate(problem.operations) if operation.backward)
    operation = problem.operations[first]
    around = sum(problem.values[v].nbytes for v in (*operation.outputs, *problem.given))
    more = max(operation.workspace_bytes, budget - max(0, retained) - around)
    bounded = replace(operation, workspace_bytes=more, signature=f"{operation.signature} first")
    operations = (*problem.operations[:first], bounded, *problem.operations[first + 1 :])
    return replace(pinned, problem=replace(problem, operations=operations))


def _judged(
    pinned: Pinned,
    planned: Planned,
    budget: int,
    flight: InFlight,
    elsewhere: Sequence[Elsewhere],
) -> Planned:
    """Return the figures of the problem itself, for as many steps as are in flight."""
    problem, schedule = pinned.problem, planned.schedule
    figures = flight.of(replay(problem, schedule))
    eager = flight.of(Solver(problem, "none").plain)
    without = replay(problem, schedule, keep_gradients=True)
    solution = replace(
        planned.solution,
        replay=figures,
        eager=eager,
        status=Status.FEASIBLE,  # what was proved holds for one bound on what is retained
        notes=(),
        lower_bound_us=eager.time_us,
    )
    return replace(
        planned,
        pinned=pinned,
        solution=solution,
        highest=highest_peak(figures, schedule, elsewhere, flight.of),
        budget_bytes=budget,
        without_grads=flight.of(without),
    )


def _infeasible(
    failure: InfeasibleBudgetError | None, budget: int, steps: int
) -> InfeasibleBudgetError:
    message = f"no schedule was found that keeps {steps} steps in flight within {budget} bytes"
    if failure is None:
        return InfeasibleBudgetError(message, budget, "", "")
    said = f"{message}; of the last one tried: {failure}"
    return InfeasibleBudgetError(said, failure.smallest_bytes, failure.strategy, failure.operation)
