"""Random layered graphs of 1000 nodes: rockmate against other strategies.

python benchmarks/large_graphs.py > benchmarks/results/large_graphs.md
"""

from __future__ import annotations

import time
from random import Random

from planned import print_table

from remat_gen.solver.bare import BareGraph, Node
from remat_gen.solver.search import Effort
from remat_gen.solver.solve import InfeasibleError, Solver

NODES, WIDTH, SEEDS = 1000, 10, (0, 1, 2)
SHARES = (95, 90, 80)
RUNS = (
    ("rockmate", Effort.NORMAL),
    ("rockmate", Effort.QUICK),
    ("ogc", Effort.NORMAL),
    ("rotor", Effort.NORMAL),
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


def row(seed: int, strategy: str, effort: Effort) -> tuple[str, ...]:
    """Return one line of the table."""
    graph, cells = layered(NODES, WIDTH, seed), []
    start = time.process_time()
    solver = Solver(graph, strategy, effort=effort)
    for share in SHARES:
        try:
            found = solver.solve(solver.plain.peak_bytes * share // 100)
            cells.append(f"{100 * (found.replay.time_us / solver.plain.time_us - 1):.3f}")
        except InfeasibleError:
            cells.append("-")
    return str(seed), strategy, effort.value, *cells, f"{time.process_time() - start:.0f}"


def main() -> None:
    """Print the table: extra time in percent, at shares of the peak of the given order."""
    rows = [row(seed, strategy, effort) for seed in SEEDS for strategy, effort in RUNS]
    print(f"# Random layered graphs of {NODES} nodes, extra time in %\n")
    print("Seconds are processor seconds of one process, all budgets together.\n")
    print_table(("seed", "strategy", "effort", *(f"{s} %" for s in SHARES), "seconds"), rows)


if __name__ == "__main__":
    main()
