"""What the host is worth as a third choice: a GPT of width 1024, re-running alone and with offload.

    python benchmarks/offload.py > benchmarks/results/offload.md

Costs are modelled from published rates (nothing is run): batch 8 × 1024 tokens, 4 layers, 16 heads,
a vocabulary of 32,000, float32. `examples/gpt.py` with those numbers; the second model returns the
loss alone.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from planned import ROOT, print_table, scratch

from remat_gen.capture.load.load import load_fake
from remat_gen.capture.profile.targets import find_target
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.plan.costing import costs_of
from remat_gen.problem.host_copies_planned import host_copies, with_host
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.all_sizes import AllSizesSolver
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import Replay
from remat_gen.solver.offload.offload_solver import OffloadSolver
from remat_gen.solver.solve import InfeasibleError, Solver

NUMBERS = {"WIDTH": 1024, "CONTEXT": 1024, "HEADS": 16, "VOCABULARY": 32000}
BOTH = "loss and logits"
LOSS = "the loss"
ROWS = (("h200", BOTH), ("h100", BOTH), ("h200", LOSS))
SHARES = (60, 50, 40, 35)
HEAD = (
    "returns",
    "target",
    "budget",
    "re-runs alone",
    "with offload",
    "sent",
    "waits",
    "peak",
    "s",
)


@dataclass(frozen=True, slots=True)
class Searched:
    """A problem with its link to the host, and the search of re-runs on it."""

    problem: Problem
    reruns: AllSizesSolver

    def without(self, budget: int) -> Replay | None:
        """Return the figures of re-running alone; None where nothing fits."""
        try:
            return self.reruns.solve(budget).solution.replay
        except InfeasibleError:
            return None

    def with_offload(self, budget: int) -> Replay | None:
        """Return the figures with the host; None where nothing fits."""
        try:
            return OffloadSolver(self.problem, self.reruns).solve(budget).solution.replay
        except InfeasibleError:
            return None


def main() -> None:
    rows = [row for target, returned in ROWS for row in _rows(target, returned)]
    print("# The host as a third choice\n")
    print(__doc__.split("\n\n")[2].strip().replace("\n", " "))
    print("Overhead is the step's time beyond eager's, waits for copies included.\n")
    print_table(HEAD, rows)


def _rows(target: str, returned: str) -> list[list[str]]:
    searched = _searched(target, returned)
    eager = searched.reruns.solver.plain
    link = searched.problem.link
    assert link is not None
    rate = f"{target}, {link.bytes_per_us / 1e3:.0f} GB/s"
    rows = []
    for share in SHARES:
        budget = eager.peak_bytes * share // 100
        without, start = searched.without(budget), time.process_time()
        found = searched.with_offload(budget)
        seconds = time.process_time() - start
        cells = [_overhead(without, eager), _overhead(found, eager), *_sent(found, searched, eager)]
        rows.append([returned, rate, f"{share} %", *cells, f"{seconds:.0f}"])
        print(*rows[-1], file=sys.stderr, flush=True)
    return rows


def _overhead(found: Replay | None, eager: Replay) -> str:
    return f"{100 * (found.time_us / eager.time_us - 1):.2f} %" if found else "infeasible"


def _sent(found: Replay | None, searched: Searched, eager: Replay) -> list[str]:
    if found is None:
        return ["", "", ""]
    nbytes = sum(searched.problem.values[v].nbytes for v in found.travelled)
    return [
        f"{len(found.travelled)} values, {nbytes / 2**30:.2f} GiB",
        f"{100 * found.waits_us / eager.time_us:.2f} %",
        f"{100 * found.peak_bytes / eager.peak_bytes:.1f} %",
    ]


def _searched(target: str, returned: str) -> Searched:
    with scratch("offload") as folder:
        file = folder / "gpt.py"
        file.write_text(source(returned), encoding="utf-8")
        loaded = load_fake(Path(file), None, None, find_target(target).absent)
        traced = trace_loaded(loaded, ())
    costs, _ = costs_of(traced, loaded, target, None, lambda *_: None)
    copies = host_copies(torch.device("cpu"), target, None)
    problem = with_host(problem_of(traced.graph, costs), traced.graph, copies)

    def make(given: Problem) -> Solver:
        return Solver(given, "auto")

    return Searched(problem, AllSizesSolver(make(problem), (), make))


def source(returned: str) -> str:
    text = (ROOT / "examples/gpt.py").read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    for i, line in enumerate(lines):
        name = line.partition(" = ")[0]
        if name in NUMBERS:
            lines[i] = f"{name} = {NUMBERS[name]}\n"
    text = "".join(lines)
    if returned == LOSS:
        text = text.replace("return loss, logits", "return loss")
        text = text.replace(
            '-> tuple[Tensor, Tensor]:\n        """Return the loss',
            '-> Tensor:\n        """Return the loss',
        )
    return text


if __name__ == "__main__":
    main()
