"""Print how long the solver takes and what it finds, on GPT-like and U-Net-like problems.

python benchmarks/solve_time.py [LAYERS …]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "solver"))

from solver_problems import gpt_like, unet_like

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.solve import STRATEGIES, InfeasibleError, Solver

SHARES = (90, 80, 70, 60, 50, 40, 30)


def overhead(solver: Solver, share: int, eager_peak: int) -> str:
    """Return the extra time in percent at a share of the plain peak."""
    try:
        solution = solver.solve(eager_peak * share // 100)
    except InfeasibleError:
        return "-"
    return f"{100 * (solution.replay.time_us / solution.eager.time_us - 1):.2f}"


def report(name: str, problem: Problem) -> None:
    """Print one line per strategy."""
    for strategy in STRATEGIES:
        start = time.perf_counter()
        solver = Solver(problem, strategy)
        searched = time.perf_counter() - start
        peak = solver.plain.peak_bytes
        found = [overhead(solver, share, peak) for share in SHARES]
        total = time.perf_counter() - start
        smallest = 100 * solver.smallest_budget().nbytes / peak
        cells = " ".join(f"{cell:>7}" for cell in found)
        print(f"{name:10} {strategy:10} {searched:6.1f} {total:6.1f} {smallest:7.1f} {cells}")


def main() -> None:
    """Print the table for the numbers of layers given."""
    layers = [int(argument) for argument in sys.argv[1:]] or [2, 12, 24, 48]
    shares = " ".join(f"{share:>6}%" for share in SHARES)
    print(f"{'problem':10} {'strategy':10} search  total min.[%] {shares}")
    for depth in (4, 6):
        report(f"unet {depth}", unet_like(depth))
    for count in layers:
        report(f"gpt {count}", gpt_like(count))


if __name__ == "__main__":
    main()
