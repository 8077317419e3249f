"""The trade-off of a model: peak against time for many budgets, strategies and what people use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from remat_gen.ask.request import Request, Strategy
from remat_gen.capture.load.load import Loaded
from remat_gen.ir.errors import UsageError
from remat_gen.solver.contest.subject import subject_of
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.solve import InfeasibleError, Solution, Solver, Status
from remat_gen.terminal.progress import Progress, Step
from remat_gen.trade_off.baselines import layered_peers
from remat_gen.trade_off.sweep_problem import Measured, measured

SMALL = 120  # operations up to which integer programs of the whole graph are tried unasked
PEERS = 10  # steps of progress for what people use
_ALWAYS = ("auto", "rockmate", "rotor", "ogc", "chen-sqrt", "chen-greedy", "griewank")
_SMALL = ("checkmate", "checkmate-lp")


@dataclass(frozen=True, slots=True)
class Point:
    """A schedule within a budget: its replayed peak and time. `optimal` among all schedules."""

    budget_bytes: int
    peak_bytes: int
    time_us: float
    found_by: str
    optimal: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """A strategy's points by rising budget; its first one is its smallest budget."""

    strategy: str
    points: tuple[Point, ...]

    def at(self, budget_bytes: int) -> Point | None:
        """Return the quickest known schedule within a budget."""
        fitting = (p for p in self.points if p.peak_bytes <= budget_bytes)
        return min(fitting, key=lambda p: (p.time_us, p.peak_bytes), default=None)


@dataclass(frozen=True, slots=True)
class Rival:
    """What people use, and what the first strategy needs within the same peak."""

    name: str
    peak_bytes: int
    time_us: float
    ratio: float | None
    ours_us: float | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """All that was swept. `budgets` are shared by all curves; below the first nothing was found."""

    title: str
    device: str
    eager_peak_bytes: int
    eager_time_us: float
    budgets: tuple[int, ...]
    curves: tuple[Curve, ...]
    rivals: tuple[Rival, ...]
    costs_reused: bool

    def overhead(self, time_us: float) -> float:
        """Return the time beyond eager's as a share of eager's."""
        return time_us / self.eager_time_us - 1 if self.eager_time_us else 0.0

    def _repr_html_(self) -> str:
        """Show tables and picture in a notebook."""
        from remat_gen.show.notebook import sweep_html

        return sweep_html(self)


def sweep_file(
    request: Request,
    live: Loaded | None,
    strategies: Sequence[str],
    *,
    points: int,
    progress: Progress,
) -> Sweep:
    """Sweep the budgets of a model that lies in a file, or of a `live` one.

    Without `strategies` all that suit the model's size are tried.

    Raises:
        RematError: the model cannot be loaded, traced or measured, a strategy is unknown, or there
            are fewer than two points.
    """
    known = [strategy.value for strategy in Strategy]
    for name in strategies:
        if name not in known:
            raise UsageError(f"--strategies {name}: unknown; known are {', '.join(known)}")
    if points < 2:
        raise UsageError(f"points: {points} is less than 2: from the least budget to all")
    found = measured(request, live, progress)
    small = len(found.problem.operations) <= SMALL
    names = tuple(strategies) or _ALWAYS + _SMALL * small
    sweeper = _Sweeper(found, points, request.effort, progress.stage("solve"), len(names))
    solvers = sweeper.solvers(names)
    budgets = sweeper.budgets(solvers)
    curves = tuple(sweeper.curve(name, solver, budgets) for name, solver in solvers.items())
    first = next(iter(solvers.values()))
    rivals, eager = tuple(sweeper.rivals(first)), first.plain
    figures = found.device, eager.peak_bytes, eager.time_us, budgets, curves, rivals, found.reused
    return Sweep(request.model_file.name, *figures)


@dataclass(slots=True)
class _Sweeper:
    found: Measured
    points: int
    effort: Effort
    step: Step
    strategies: int
    done: int = 0

    def solvers(self, names: Sequence[str]) -> dict[str, Solver]:
        """Return the strategies, each with its smallest budget known."""
        solvers: dict[str, Solver] = {}
        for name in names:
            self._tell(f"{name}: smallest budget")
            solvers[name] = Solver(self.found.problem, name, self._inner(name), self.effort)
            solvers[name].smallest_budget()
        return solvers

    def budgets(self, solvers: dict[str, Solver]) -> tuple[int, ...]:
        """Return budgets from the smallest that any strategy meets to eager's peak, evenly."""
        plain = next(iter(solvers.values())).plain.peak_bytes
        least = min(solver.smallest_budget().nbytes for solver in solvers.values())
        last = max(self.points - 1, 1)
        steps = (least + (plain - least) * k // last for k in range(last + 1))
        return tuple(dict.fromkeys(steps))

    def curve(self, name: str, solver: Solver, budgets: Sequence[int]) -> Curve:
        """Return a strategy's points, its smallest budget among them."""
        smallest = solver.smallest_budget().nbytes
        asked = sorted({smallest, *(b for b in budgets if b >= smallest)})
        points = []
        for budget in asked:
            self._tell(f"{name}: {100 * budget / max(solver.plain.peak_bytes, 1):.0f} %")
            if found := _solved(solver, budget):
                figures, optimal = found.replay, found.status is Status.OPTIMAL
                peak_bytes, time_us = figures.peak_bytes, figures.time_us
                points.append(Point(budget, peak_bytes, time_us, found.strategy, optimal))
        return Curve(name, tuple(points))

    def rivals(self, solver: Solver) -> Iterator[Rival]:
        """Yield what people use, each beside what a strategy needs within the same peak."""
        self._tell("what people use")
        from remat_gen.trade_off.torch_baselines import compiled_peers

        subject = subject_of(self.found.problem.in_new_memory())
        for peer in (*layered_peers(subject), *compiled_peers(self.found.graph, subject)):
            self._tell(peer.name)
            ours = _solved(solver, peer.replay.peak_bytes)
            figures, ours_us = peer.replay, ours.replay.time_us if ours else None
            yield Rival(peer.name, figures.peak_bytes, figures.time_us, peer.ratio, ours_us)

    @property
    def _total(self) -> int:
        """Return how many steps there are, or a few more."""
        return self.strategies * (self.points + 2) + PEERS

    def _tell(self, what: str) -> None:
        self.done += 1
        self.step(what, self.done, self._total)

    def _inner(self, name: str) -> Step:
        def step(what: str, done: int, total: int) -> None:
            self.step(f"{name}: {what} {done}/{total}", self.done, self._total)

        return step


def _solved(solver: Solver, budget_bytes: int) -> Solution | None:
    try:
        return solver.solve(budget_bytes)
    except InfeasibleError:
        return None
