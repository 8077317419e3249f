"""How long `check` takes, and how much memory: a GPT of 48 layers, a Llama of 7 billion parameters.

    python benchmarks/check_cost.py

Both are planned on fake tensors with modelled costs, so that nothing of their size is allocated or
measured; then `remat-gen check` runs in a process of its own, as in CI.
"""

from __future__ import annotations

import contextlib
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from planned import ROOT, print_table, scratch

from remat_gen.ask.budget import parse_budget
from remat_gen.ask.pin_patterns import Pins, pin
from remat_gen.ask.request import Request, Strategy, default_output
from remat_gen.capture.load.load import load
from remat_gen.capture.profile.roofline import NOMINAL_CPU, roofline_us
from remat_gen.capture.trace.trace import Traced, trace
from remat_gen.ir.costs import Cost, Costs
from remat_gen.ir.plan import plan_text
from remat_gen.plan.emission import describe, module_text
from remat_gen.plan.measured_step import MeasuredStep
from remat_gen.plan.output import plan_path, write_all
from remat_gen.plan.planning import Search, make_plan
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.solve import Solver
from remat_gen.terminal.progress import Progress

BUDGET = "60%"
RUNS = 3
LLAMA = """import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=4096,
    use_cache=False,
)


def build_model() -> nn.Module:
    return LlamaForCausalLM(CONFIG)


def example_inputs() -> dict[str, Tensor]:
    ids = torch.randint(CONFIG.vocab_size, (1, 2048))
    return {"input_ids": ids, "labels": ids.clone()}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A model's source, and the strategy that plans it."""

    name: str
    source: Callable[[], str]
    strategy: Strategy


def gpt() -> str:
    """Return examples/gpt.py with 48 layers."""
    text = (ROOT / "examples" / "gpt.py").read_text(encoding="utf-8")
    return text.replace("LAYERS = 4\n", "LAYERS = 48\n")


CASES = (
    Case("gpt.py, 48 layers", gpt, Strategy.AUTO),
    Case("Llama, 7 billion parameters", lambda: LLAMA, Strategy.PER_LAYER),
)


def modelled(traced: Traced) -> Costs:
    """Return costs by the roofline."""
    graph = traced.graph
    return Costs(
        "cpu", {o.name: Cost(roofline_us(graph, o, NOMINAL_CPU), 0) for o in graph.operations}
    )


def plan_fake(path: Path, strategy: Strategy) -> int:
    """Write a module and its plan without values; return how many parameters the model has."""
    output = default_output(path)
    request = Request(path, parse_budget(BUDGET), output, strategy=strategy, effort=Effort.QUICK)
    loaded = load(path, None, None, "cpu", fake=True)
    with loaded.importable():
        traced = trace(loaded.model, loaded.args, loaded.kwargs, path, None)
        costs = modelled(traced)
        pinned = pin(problem_of(traced.graph, costs), traced.graph, Pins())
        search = Search(strategy.value, Effort.QUICK, Progress().stage("solve"))
        eager = Solver(pinned.problem, "none").plain.peak_bytes
        budget = parse_budget(BUDGET).resolve(eager)
        planned = make_plan(pinned, traced.graph, budget, search)
        plan = describe(MeasuredStep(request, loaded, traced, costs), planned)
        text = module_text(loaded, traced, planned.problem, planned.schedule, plan, output)
    write_all({plan_path(output): plan_text(plan), output: text})
    return sum(p.numel() for p in loaded.model.parameters())


def check(path: Path) -> tuple[str, float, int]:
    """Return the verdict of `check`, its least seconds, and the most memory of its processes.

    What else a machine does only adds time.
    """
    command = [sys.executable, "-m", "remat_gen.cli.app", "check", path.name]
    seconds = math.inf
    for _ in range(RUNS):
        begin = time.perf_counter()
        done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
        seconds = min(seconds, time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return (done.stdout or done.stderr).strip().splitlines()[-1], seconds, peak


def main() -> None:
    """Print a row for each model; the second row's memory is the larger of both."""
    rows = []
    with scratch("check_cost") as folder, contextlib.chdir(folder):
        for number, case in enumerate(CASES):
            path = folder / f"model{number}.py"
            path.write_text(case.source(), encoding="utf-8")
            parameters = plan_fake(path, case.strategy)
            verdict, seconds, peak = check(default_output(path))
            lines = len(default_output(path).read_text(encoding="utf-8").splitlines())
            assert verdict.endswith("up to date"), verdict
            row = (case.name, f"{parameters / 1e6:,.0f} M", f"{lines:,}")
            rows.append((*row, f"{seconds:.1f} s", f"{peak / 1e9:.2f} GB"))
    print_table(("model", "parameters", "lines written", "check", "memory"), rows)


if __name__ == "__main__":
    main()
