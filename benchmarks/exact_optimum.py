"""The exact search: optima proved and bounds, beside the optima in stages of the given order.

python benchmarks/exact_optimum.py DATA_FOLDER > benchmarks/results/exact_optimum.md

DATA_FOLDER holds vgg16.json and unet.json, the profiled training graphs of Checkmate's evaluation.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "solver"))

from exact_oracle import graph_of, layered
from solver_problems import GptShape, gpt_like

from remat_gen.bare.graph_file import parse_graph
from remat_gen.solver.blocks.judged_runs import incumbent_of
from remat_gen.solver.contest.entrants import searched
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort, Found
from remat_gen.solver.published import checkmate
from remat_gen.solver.solve import InfeasibleError, Solver
from remat_gen.solver.stages.exact_search import search

PROVED = {"vgg16": (95, 90, 85, 83), "unet": (90, 80, 60, 50, 39)}  # DESIGN.md, section 8
SHARES = (90, 70, 50, 30)


def main() -> None:
    """Print all tables as Markdown."""
    folder = Path(sys.argv[1])
    print("# Exact search\n\nTimes are ratios to running each node once; budgets and peaks are")
    print("percent of the plain peak; every figure is the replay's. Effort normal.")
    print("\n## Profiled graphs, beside the optimum in stages of the given order\n")
    row("graph", "budget %", "time", "bound", "status", "checkmate")
    print("|---" * 6 + "|")
    for name, shares in PROVED.items():
        problem = parse_graph((folder / f"{name}.json").read_text()).problem()
        for share in shares:
            compare(name, problem, share)
    print("\n## Training graphs: GPTs of 118 and 222 operations, small vocabulary\n")
    table({f"gpt, {n} layers": gpt(n) for n in (2, 4)})
    print("\n## Random layered graphs with skips, forward and backward\n")
    table({f"{n} nodes, seed {s}": layered(n, s) for n in (40, 100) for s in (1, 2)})


def compare(name: str, problem: Problem, share: int) -> None:
    """Print a row of the exact search beside Checkmate's program."""
    budget = plain_peak(problem) * share // 100
    theirs = searched(checkmate.search, problem, budget, Effort.THOROUGH)
    row(name, str(share), *result(problem, search(problem, budget)), result(problem, theirs)[0])


def table(problems: dict[str, Problem]) -> None:
    """Print rows of the exact search alone, and of `auto`, which it is a part of."""
    row("graph", "budget %", "time", "bound", "status", "auto")
    print("|---" * 6 + "|")
    for name, problem in problems.items():
        peak = plain_peak(problem)
        for share in SHARES:
            budget = peak * share // 100
            row(name, str(share), *result(problem, search(problem, budget)), auto(problem, budget))


def auto(problem: Problem, budget: int) -> str:
    """Return the time of what `auto` finds, over running each operation once."""
    solver = Solver(problem if problem.forward_count else graph_of(problem), "auto")
    try:
        found = solver.solve(budget).replay.time_us
    except InfeasibleError:
        return "–"
    return f"{found / sum(operation.time_us for operation in problem.operations):.4f}"


def result(problem: Problem, found: Found) -> list[str]:
    """Return time and bound, over running each operation once, and what is proved."""
    once = sum(operation.time_us for operation in problem.operations)
    status = "proved" if found.complete else "open"
    if found.complete and found.bound_for != "all schedules":
        status = f"proved for {found.bound_for}"
    if found.runs is None:
        return ["–", "–" if found.complete else f"{found.lower_bound_us / once:.4f}", status]
    judged = incumbent_of(problem, 0).offer(found.runs)
    assert judged is not None
    return [f"{judged.time_us / once:.4f}", f"{found.lower_bound_us / once:.4f}", status]


def plain_peak(problem: Problem) -> int:
    """Return the peak of the given order, nothing re-run."""
    judged = incumbent_of(problem, 0).offer(range(len(problem.operations)))
    assert judged is not None
    return judged.replay.peak_bytes


def gpt(layers: int) -> Problem:
    """Return a GPT's training step whose backward operations run once."""
    problem = gpt_like(layers, GptShape(vocabulary=1000))
    once = (replace(o, rerunnable=o.rerunnable and not o.backward) for o in problem.operations)
    return replace(problem, operations=tuple(once))


def row(*cells: str) -> None:
    """Print a table row."""
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
