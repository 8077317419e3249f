"""Large graphs: auto in a minute against the best of all strategies in ten.

python benchmarks/large_graphs.py [NUMBER …] > benchmarks/results/large_graphs.md

NUMBERs choose graphs, from 0. Each budget gives `auto` its normal effort; against it stand `auto`
and `rockmate` at thorough effort, stopped after ten minutes as by Ctrl-C, and `ogc` and `rotor`.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from random import Random

from fake_step import fake_problem
from planned import print_table
from vision import RATES
from vision_models import ROWS

from remat_gen.solver.law.bare_graph import BareGraph, Node
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.solve import InfeasibleError, Solution, Solver

NODES, WIDTH = 1000, 10
LIMIT_S = 600
SHARES = (95, 90, 80)
AGAINST = (
    ("auto", Effort.THOROUGH),
    ("rockmate", Effort.THOROUGH),
    ("ogc", Effort.NORMAL),
    ("rotor", Effort.NORMAL),
)
HEAD = (
    *("graph", "operations", "budget", "auto", "seconds", "bound"),
    *(f"{name}, {effort.value}" for name, effort in AGAINST),
    "off by",
)


def layered(count: int, width: int, seed: int) -> BareGraph:
    """Return a random layered graph: inputs from the two layers before, some from further back."""
    random = Random(seed)
    nodes = []
    for i in range(count):
        layer = i // width
        near = range(max(0, (layer - 2) * width), layer * width)
        inputs = set(random.sample(near, min(len(near), random.randint(1, 3))))
        if layer > 4 and random.random() < 0.15:
            inputs.add(random.randrange((layer - 3) * width))
        time_us, nbytes = float(random.randint(1, 20)), random.randint(1, 64)
        nodes.append(Node(f"n{i}", time_us, nbytes, False, tuple(sorted(inputs))))
    return BareGraph(tuple(nodes), frozenset(range(count - width, count)))


def resnet50() -> Problem:
    """Return a training step of ResNet-50, batch 64, its loss inside."""
    (row,) = [row for row in ROWS if row.name.startswith("ResNet-50")]
    return fake_problem(row.build, row.inputs, RATES)


GRAPHS: tuple[tuple[str, Callable[[], BareGraph | Problem]], ...] = (
    ("ResNet-50", resnet50),
    *(
        (f"layered, seed {seed}", lambda seed=seed: layered(NODES, WIDTH, seed))
        for seed in range(3)
    ),
)


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Interrupt what runs longer, in processor time of this process."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def solved(solver: Solver, budget_bytes: int) -> Solution | None:
    """Return a strategy's best within ten minutes, if it has one."""
    try:
        with interrupted_after(LIMIT_S):
            return solver.solve(budget_bytes)
    except (InfeasibleError, KeyboardInterrupt):
        return None


def rows(name: str, problem: BareGraph | Problem) -> Iterator[tuple[str, ...]]:
    """Yield a line for each budget: extra times in % of running each operation once."""
    solvers = [Solver(problem, strategy, effort=effort) for strategy, effort in AGAINST]
    plain = solvers[0].plain
    for share in SHARES:
        budget = plain.peak_bytes * share // 100
        start = time.process_time()
        ours = solved(Solver(problem, "auto"), budget)
        seconds = time.process_time() - start
        others = [solved(solver, budget) for solver in solvers]
        times = [s.replay.time_us for s in (ours, *others) if s is not None]
        bound = max((s.lower_bound_us for s in (ours, *others) if s), default=plain.time_us)
        off = f"{100 * (ours.replay.time_us / min(times) - 1):.2f} %" if ours else "-"
        cells = [_extra(s.replay.time_us if s else None, plain.time_us) for s in (ours, *others)]
        figures = (cells[0], f"{seconds:.0f}", _extra(bound, plain.time_us), *cells[1:], off)
        yield name, str(_count(problem)), f"{share} %", *figures


def _extra(time_us: float | None, plain_us: float) -> str:
    return "-" if time_us is None else f"{100 * (max(time_us, plain_us) / plain_us - 1):.3f}"


def _count(problem: BareGraph | Problem) -> int:
    return len(problem.nodes if isinstance(problem, BareGraph) else problem.operations)


def main() -> None:
    """Print the table."""
    chosen = [int(word) for word in sys.argv[1:]] or range(len(GRAPHS))
    table = [line for i in chosen for line in rows(GRAPHS[i][0], GRAPHS[i][1]())]
    print("# Large graphs, extra time in %\n")
    print("Budgets are shares of the peak with nothing re-run, seconds processor seconds of `auto`")
    print("(normal) for that budget alone. The bound holds for all schedules. Off by: `auto` above")
    print("the best of the line; the thorough ones were stopped after ten minutes.\n")
    print_table(HEAD, table)


if __name__ == "__main__":
    main()
