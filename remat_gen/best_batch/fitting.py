"""Find the batch, and the schedule for it, with the most samples per second within a memory.

A larger batch makes better use of a device, and costs re-runs where it does not fit as it is. So
batch and budget are chosen together: for each batch the quickest schedule in what is left for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from remat_gen.ask.budget import Budget
from remat_gen.ask.request import Request
from remat_gen.best_batch.batch_steps import BatchSteps
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.refuse.left_out import LeftOut
from remat_gen.ir.byte_text import size
from remat_gen.ir.errors import InfeasibleBudgetError, UsageError
from remat_gen.plan.costing import load_for
from remat_gen.plan.pipeline import Generated
from remat_gen.plan.pipeline import generate as run
from remat_gen.plan.planning import Search
from remat_gen.problem.host_copies_planned import host_copies
from remat_gen.solver.all_sizes import AllSizesSolver
from remat_gen.solver.law.replay import Replay
from remat_gen.solver.law.search_types import silent
from remat_gen.solver.offload.offload_solver import OffloadSolver
from remat_gen.solver.solve import InfeasibleError, Solver
from remat_gen.terminal.progress import Progress, Step

MOST = 1 << 20  # samples: a larger batch is not looked at
_BITS = 4  # of a batch that is looked at, the rest is 0: steps of at most an eighth
_ROWS = 6  # batches that are planned evenly, in steps of a factor
_NEARER = 3  # more beside the best one


@dataclass(frozen=True, slots=True)
class Row:
    """A batch: what its activations may take, what they take in eager, and its schedule if any.

    `eager_us` is the time of a step with nothing re-run, whether it fits or not.
    """

    batch: int
    limit_bytes: int
    eager_peak_bytes: int
    eager_us: float
    peak_bytes: int | None
    time_us: float | None

    @property
    def fits_eager(self) -> bool:
        """Tell whether a step fits with nothing re-run."""
        return self.eager_peak_bytes <= self.limit_bytes

    @property
    def samples_per_s(self) -> float:
        """Return how many samples a planned step does in a second, 0 where there is none."""
        return 1e6 * self.batch / self.time_us if self.time_us else 0.0

    @property
    def eager_samples_per_s(self) -> float:
        """Return how many eager's step would do, had it the memory."""
        return 1e6 * self.batch / self.eager_us if self.eager_us else 0.0


@dataclass(frozen=True, slots=True)
class Fit:
    """What was tried, by rising batch; `eager` and `largest` are the largest that fit.

    `eager` is None where no batch fits with nothing re-run; a step without what is `left_out`, that
    is. `written` has what was generated.
    """

    title: str
    device: str
    limit: str
    rows: tuple[Row, ...]
    eager: Row | None
    largest: Row
    best: Row
    left_out: tuple[LeftOut, ...] = ()
    written: Generated | None = None

    def relative(self, row: Row) -> float | None:
        """Return a row's samples per second over those of eager's largest batch."""
        base = self.eager.samples_per_s if self.eager else 0.0
        return row.samples_per_s / base if base else None

    def _repr_html_(self) -> str:
        """Show table and picture in a notebook."""
        from remat_gen.show.notebook import fit_html

        return fit_html(self)


def fit_file(
    request: Request, progress: Progress, live: Loaded | None = None, *, write: bool = False
) -> Fit:
    """Fit a model; `write` generates it for the best batch that can be planned.

    Raises:
        RematError: the model cannot be loaded, traced or measured, or no batch fits.
    """
    _refuse_share(request)
    progress.stage("load")
    loaded = load_for(request, live)
    copies = host_copies(loaded.device, request.target, None) if request.offload else None
    steps = BatchSteps(request, loaded, progress.stage, copies=copies)
    fitted = _Fitter(steps, progress).fit()
    return _written(fitted, request, progress, live) if write else fitted


def _refuse_share(request: Request) -> None:
    limit = request.limit
    if isinstance(limit, Budget) and limit.percent is not None:
        raise UsageError(
            f"--budget {limit.text}: a share of eager's peak says nothing where the batch is "
            "looked for; give bytes, or --device-memory 24GB"
        )


def _written(found: Fit, request: Request, progress: Progress, live: Loaded | None) -> Fit:
    """Generate the best batch; where costs between measured batches promised too much, the next."""
    rows = sorted((r for r in found.rows if r.time_us), key=lambda r: -r.samples_per_s)
    refused: InfeasibleBudgetError | None = None
    for row in rows:
        try:
            return replace(
                found, written=run(replace(request, batch=row.batch), progress, live), best=row
            )
        except InfeasibleBudgetError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def looked_at(least: int, most: int) -> Iterator[int]:
    """Yield the batches of a few binary digits: 1 … 15, 16, 18 … 30, 32, 36 … 60, 64, 72 …."""
    for batch in range(max(least, 1), most + 1):
        if batch % (1 << max(0, batch.bit_length() - _BITS)) == 0:
            yield batch


@dataclass(slots=True)
class _Fitter:
    steps: BatchSteps
    progress: Progress
    rows: dict[int, Row] = field(default_factory=dict)

    def fit(self) -> Fit:
        self._reach()
        step = 1 if self.steps.varies else self.steps.example  # where each is traced, its multiples
        batches = [n for n in looked_at(self.steps.least, self.steps.reach) if n % step == 0]
        eager = _last(batches, lambda n: self._eager(n).fits_eager)
        above = [n for n in batches if eager is None or n >= eager]
        largest = _last(above, lambda n: self._planned(n).time_us is not None)
        if largest is None:
            raise self._nothing_fits()
        for batch in self._evenly(batches, eager, largest):
            if self._eager(batch).eager_samples_per_s > self._best().samples_per_s:
                self._planned(batch)  # else not even without re-runs it would be the best
        self._around_best(batches, largest)
        self._search_best()
        eager_row = None if eager is None else self._planned(eager)
        request = self.steps.request
        return Fit(
            title=request.model_file.name,
            device=request.target_word or self.steps.loaded.device.type,
            limit=request.limit.text,
            rows=tuple(row for _, row in sorted(self.rows.items())),
            eager=eager_row,
            largest=self.rows[largest],
            best=self._best(),
            left_out=self.steps.left_out,
        )

    def _reach(self) -> None:
        """Trace for the largest batch of which every operation fits alone."""
        example = self.steps.example
        self.steps.trace_for(max(example, 2))
        doubled = (max(self.steps.least, 1) << k for k in range(MOST.bit_length()))
        reach = _last((n for n in doubled if n <= MOST), self._may_fit)
        if reach is None:
            raise self._nothing_fits()
        if self.steps.varies:
            reach = _last(looked_at(reach, 2 * reach), self._may_fit) or reach
            if reach > self.steps.reach:
                self.steps.trace_for(reach)
        self.steps.reach = reach

    def _may_fit(self, batch: int) -> bool:
        limit = self.steps.limit(batch)
        return limit > 0 and self.steps.bare_problem(batch).floor_bytes() <= limit

    def _nothing_fits(self) -> InfeasibleBudgetError:
        least = self.steps.least
        needed = self.steps.bare_problem(least).floor_bytes()
        return InfeasibleBudgetError(
            f"not even a batch of {least} fits {self.steps.request.limit.text}: "
            f"{size(self.steps.limit(least))} are left for activations, and one operation alone "
            f"takes {size(needed)}",
            needed,
            self.steps.request.strategy.value,
            "",
        )

    def _evenly(self, batches: list[int], eager: int | None, largest: int) -> Iterator[int]:
        """Yield batches from eager's largest to the largest, and one below."""
        low = eager or batches[0]
        for batch in [*[n for n in batches if n <= low // 2][-1:], low]:
            self._planned(batch)
        for k in range(1, _ROWS):
            wanted = low * (largest / low) ** (k / (_ROWS - 1))
            yield min(batches, key=lambda n: abs(n - wanted))

    def _around_best(self, batches: list[int], largest: int) -> None:
        """Plan what stands beside the best batch, as long as that is better."""
        for _ in range(_NEARER):
            at = batches.index(self._best().batch)
            beside = [n for n in batches[max(at - 1, 0) : at + 2] if n <= largest]
            new = [n for n in beside if n not in self.rows]
            if not new:
                return
            self._planned(new[-1])

    def _best(self) -> Row:
        return max(self.rows.values(), key=lambda row: row.samples_per_s)

    def _eager(self, batch: int) -> Row:
        problem = self.steps.problem(batch)
        plain = Solver(problem, "none").plain
        limit = self.steps.limit(batch)
        return Row(batch, limit, plain.peak_bytes, plain.time_us, None, None)

    def _planned(self, batch: int) -> Row:
        if batch not in self.rows:
            self.rows[batch] = self._solved(self._eager(batch))
        return self.rows[batch]

    def _solved(self, row: Row) -> Row:
        step = self.progress.stage("solve")
        step(f"batch {row.batch}", len(self.rows), len(self.rows) + 1)
        figures = self._solver(row.batch).glance(row.limit_bytes)
        return row if figures is None else _with(row, figures)

    def _search_best(self) -> None:
        """Search the best batch as `generate` would: the others had a glance."""
        best = self._best()
        step = self.progress.stage("solve")
        step(f"batch {best.batch}", len(self.rows), len(self.rows) + 1)
        with contextlib.suppress(InfeasibleError):
            figures = self._solver(best.batch, step).solve(best.limit_bytes).solution.replay
            if best.time_us is None or figures.time_us < best.time_us:
                self.rows[best.batch] = _with(best, figures)

    def _solver(self, batch: int, step: Step = silent) -> AllSizesSolver | OffloadSolver:
        request = self.steps.request
        search = Search(request.strategy.value, request.effort, step, alike=False)
        return search.solver(self.steps.problem(batch))


def _with(row: Row, figures: Replay) -> Row:
    return replace(row, peak_bytes=figures.peak_bytes, time_us=figures.time_us)


def _last(batches: Iterator[int] | list[int], holds: Callable[[int], bool]) -> int | None:
    """Return the last of rising batches for which something holds; above it, it holds for none.

    Iterators are asked one after another, as their batches may be without end, lists by bisection.
    """
    if not isinstance(batches, list):
        found = None
        for batch in batches:
            if not holds(batch):
                return found
            found = batch
        return found
    low, high = 0, len(batches)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if holds(batches[middle]) else (low, middle)
    return batches[low - 1] if low else None
