"""How far schedules from modelled costs are from those from measured ones, on this CPU.

    python benchmarks/modelled.py > benchmarks/results/modelled.md

This CPU is calibrated into a target. Each example is then planned at 60 % of its eager activation
peak twice, with the target's modelled costs and with measured ones, and both schedules are judged
by the measured costs.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import torch
from planned import EXAMPLES, ROOT, print_table

from remat_gen.capture.load.load import load
from remat_gen.capture.profile.calibrate import calibrate
from remat_gen.capture.profile.modelled import modelled_costs
from remat_gen.capture.profile.profile import profile
from remat_gen.capture.profile.targets import Hardware
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.ir.costs import Costs
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import Replay, replay
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.solve import Solver

SHARE = 0.6
REPEATS = 2  # of the measurement: how far it is from itself
HEAD = (
    "example",
    "step, modelled : measured",
    "one operation, median (10 to 90 %)",
    "overhead, promised",
    "overhead, as measured",
    "with measured costs",
    "loss, points",
    "measured again",
    "peak over budget",
)


def main() -> None:
    """Print the table."""
    device = torch.device("cpu")
    target = calibrate(device)
    rates = ", ".join(f"{d} {r / 1e9:.0f}" for d, r in sorted(target.flops_per_s.items()))
    print("# Modelled costs beside measured ones\n")
    print(f"The CPU as calibrated: {rates} GFLOP/s, {target.bytes_per_s / 1e9:.0f} GB/s,")
    print(f"{target.launch_us:.1f} µs a launch. Overheads are replayed, over nothing re-run, in %.")
    print("`measured again` is the loss of a schedule planned with another measurement.\n")
    print_table(HEAD, [row(name, target, device) for name in EXAMPLES])


def row(name: str, target: Hardware, device: torch.device) -> tuple[str, ...]:
    """Return a line of the table."""
    loaded = load(Path(ROOT / "examples" / f"{name}.py"), device="cpu")
    traced = trace_loaded(loaded)
    measured, again = (profile(traced.graph, device, traced.examples) for _ in range(REPEATS))
    modelled = modelled_costs(traced.graph, target)
    judge = problem_of(traced.graph, measured)
    budget = int(SHARE * Solver(judge).plain.peak_bytes)
    plain = Solver(judge).plain.time_us
    promised, ours = planned(problem_of(traced.graph, modelled), budget)
    _, theirs = planned(judge, budget)
    _, other = planned(problem_of(traced.graph, again), budget)
    judged, best, repeated = (replay(judge, s) for s in (ours, theirs, other))
    return (
        name,
        f"{total(modelled) / total(measured):.2f}",
        spread(modelled, measured),
        f"{100 * promised:.2f}",
        f"{over(judged, plain):.2f}",
        f"{over(best, plain):.2f}",
        f"{over(judged, plain) - over(best, plain):.2f}",
        f"{over(repeated, plain) - over(best, plain):.2f}",
        f"{max(0, judged.peak_bytes - budget) / budget:.2%}",
    )


def planned(problem: Problem, budget_bytes: int) -> tuple[float, Schedule]:
    """Return the overhead that a schedule promises by the costs it was planned with, and it."""
    found = Solver(problem, "auto", effort=Effort.QUICK).solve(budget_bytes)
    return found.replay.time_us / found.eager.time_us - 1, found.schedule


def over(found: Replay, plain_us: float) -> float:
    """Return an overhead in percent."""
    return 100 * (found.time_us / plain_us - 1)


def total(costs: Costs) -> float:
    """Return the time of all operations, each run once."""
    return sum(cost.time_us for cost in costs.operations.values())


def spread(modelled: Costs, measured: Costs) -> str:
    """Return how many times as long as measured operations are modelled: median and range."""
    ratios = sorted(
        modelled.operations[name].time_us / max(cost.time_us, 1e-3)
        for name, cost in measured.operations.items()
    )
    low, *_, high = statistics.quantiles(ratios, n=10)
    return f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
