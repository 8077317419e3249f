"""Plan GPT-2 medium on fake tensors, at shares of what keeping everything retains.

python benchmarks/gpt2_medium.py [LAYERS …] > benchmarks/results/gpt2_medium.md
"""

from __future__ import annotations

import sys
import time

import torch
from fake_step import fake_problem, gradient_outside, retained_bytes
from gpt2_model import Shape, step_of
from planned import print_table

from remat_gen.capture.profile.roofline import Rates
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.solve import InfeasibleError, Solver

SHARES = (90, 60, 50, 30, 10)
RATES = Rates(flops_per_us=600e6, bytes_per_us=4e6, launch_us=3.0)
STRATEGIES = ("auto", "rotor", "per-layer")
ASKED = {24: ("asked, at most", "3.1", "7.2", "10.7", "19.0", "35.0", "10 s")}
OUTPUTS = {
    "hidden": "no loss: trunk to the last LayerNorm, incoming gradient outside the budget",
    "logits": "no loss: the head's logits are the output, incoming gradient outside the budget",
    "loss": "the loss inside",
}
PREAMBLE = """Replayed time above running each operation once, in %, by share of the bytes that
keeping everything retains: all forward values that backward reads and the step's outputs, counted
between forward and backward. The budget bounds the replayed *peak* of the whole step, transients
of backward included; "plain" is that peak with nothing re-run, as a share of the same bytes.
A dash: infeasible for the strategy, whose smallest budget is given. bf16, batch 8 × 1024, roofline
of 600 TFLOP/s, 4 TB/s and 3 µs an operation, storages in blocks of 512 bytes. Seconds are
processor seconds of one process, a whole search for one budget."""


def problem_for(layers: int, output: str) -> Problem:
    """Return the problem of one training step."""
    build, inputs = step_of(Shape(layers=layers, output=output))
    problem = fake_problem(build, inputs, RATES, torch.bfloat16)
    return problem if output == "loss" else gradient_outside(problem)


def row(problem: Problem, strategy: str) -> tuple[str, ...]:
    """Return a strategy's row: a new search for each budget, and the seconds of the one at 60 %."""
    retained = retained_bytes(problem)
    cells, seconds = [], {}
    for share in SHARES:
        start = time.process_time()
        cells.append(overhead(problem, strategy, retained * share // 100, retained))
        seconds[share] = time.process_time() - start
    return strategy, *cells, f"{seconds[60]:.1f} s"


def overhead(problem: Problem, strategy: str, budget: int, retained: int) -> str:
    """Return the extra time in percent within a budget."""
    plain_us = sum(operation.time_us for operation in problem.operations)
    try:
        found = Solver(problem, strategy).solve(budget).replay
    except InfeasibleError as error:
        return f"- (from {100 * error.smallest_bytes / retained:.1f} %)"
    return f"{100 * (found.time_us / plain_us - 1):.2f}"


def report(layers: int, output: str) -> None:
    """Print one table."""
    problem = problem_for(layers, output)
    retained = retained_bytes(problem)
    everything = 2 * sum(value.nbytes for value in problem.values)
    plain = Solver(problem, "none").solve(everything).replay.peak_bytes
    print(f"\n## {layers} layers, {OUTPUTS[output]}\n")
    print(f"{len(problem.operations)} operations; keeping everything retains", end=" ")
    print(f"{retained / 1e9:.2f} GB; plain peak {100 * plain / retained:.1f} %.\n")
    rows = [row(problem, strategy) for strategy in STRATEGIES]
    head = ("strategy", *(f"{share} %" for share in SHARES), "solve, 60 %")
    asked = ASKED.get(layers)
    print_table(head, [*rows, asked] if asked and output != "loss" else rows)


def main() -> None:
    """Print the tables."""
    print("# GPT-2 medium on paper\n")
    print(PREAMBLE)
    for layers in [int(word) for word in sys.argv[1:]] or [24, 96]:
        for output in OUTPUTS:
            report(layers, output)


if __name__ == "__main__":
    main()
