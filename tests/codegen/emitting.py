"""From a model's source text to a generated module beside it, with modelled costs: quick."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from remat_gen.capture.load import Loaded, load
from remat_gen.capture.trace import Traced, trace
from remat_gen.codegen.module import Target, emit_body
from remat_gen.ir.costs import Cost, Costs
from remat_gen.ir.graph import Graph
from remat_gen.problem import problem_of
from remat_gen.report import Report
from remat_gen.solver.problem import Problem
from remat_gen.solver.replay import replay
from remat_gen.solver.schedule import Schedule
from remat_gen.solver.solve import Solver
from remat_gen.verify import verify_models

CPU = torch.device("cpu")
Choose = Callable[[Problem], Schedule]

HEAD = """\
import torch
import torch.nn.functional as F
from torch import Tensor, nn

"""


def model_costs(graph: Graph) -> Costs:
    """Return costs that follow from the graph alone: bytes written, no workspace."""
    costs = {
        o.name: Cost(1.0 + sum(graph.storages[s].nbytes for s in graph.writes(o)) / 1e4, 0)
        for o in graph.operations
    }
    return Costs("cpu", costs)


@dataclass(frozen=True, slots=True)
class Emitted:
    """A generated module and what it was made of."""

    loaded: Loaded
    traced: Traced
    problem: Problem
    schedule: Schedule
    text: str
    path: Path

    @property
    def peak_bytes(self) -> int:
        """Return the replayed peak."""
        return replay(self.problem, self.schedule).peak_bytes

    def verify(self) -> Report:
        """Run two steps of both models and compare all that they leave behind."""
        planned = load(self.path, self.loaded.builder, self.loaded.inputs_name, "cpu")
        with self.loaded.importable():
            return verify_models(
                self.loaded.model,
                planned.model,
                self.loaded.args,
                self.loaded.kwargs,
                device=CPU,
                predicted_peak_bytes=None,
                budget_bytes=None,
            )

    def tree(self) -> ast.Module:
        """Return the syntax tree of the text."""
        return ast.parse(self.text)


def keep_all(problem: Problem) -> Schedule:
    """Retain everything."""
    return Solver(problem, "none").solve(2**60).schedule


def at_share(strategy: str, share: float) -> Choose:
    """Solve for a budget between the strategy's smallest (0.0) and the plain peak (1.0)."""

    def choose(problem: Problem) -> Schedule:
        solver = Solver(problem, strategy)
        smallest = solver.smallest_budget().nbytes
        plain = solver.solve(2**60).eager.peak_bytes
        return solver.solve(smallest + max(0, int(share * (plain - smallest)))).schedule

    return choose


def emit(
    folder: Path,
    source: str,
    choose: Choose = keep_all,
    *,
    name: str = "net",
    model: str | None = None,
    costs: Callable[[Graph], Costs] = model_costs,
) -> Emitted:
    """Write a model file, plan it, and write the generated module beside it."""
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    loaded = load(path, model, None, "cpu")
    output = folder / f"{name}_remat.py"
    with loaded.importable():
        traced = trace(loaded.model, loaded.args, loaded.kwargs, path)
        problem = problem_of(traced.graph, costs(traced.graph))
        schedule = choose(problem)
        target = Target(
            source=loaded.source,
            file_name=path.name,
            namespace=vars(loaded.module),
            model=loaded.model,
            builder=loaded.builder,
            output=output,
            command=f"remat-gen {name}.py --budget 60% -o {name}_remat.py",
            device="cpu",
        )
        text = emit_body(target, traced, problem, schedule)
    output.write_text(text, encoding="utf-8")
    return Emitted(loaded, traced, problem, schedule, text, output)


def assert_same_as_eager(emitted: Emitted, *, bitwise: bool = True) -> Report:
    """Assert that outputs, gradients, buffers, inputs and random streams are eager's."""
    report = emitted.verify()
    assert not report.failure, report.failure
    assert not report.original_failure, report.original_failure
    wanted = ("bitwise",) if bitwise else ("bitwise", "within tolerance")
    different = [c for c in report.comparisons if c.match.value not in wanted]
    assert report.comparisons
    assert not different, different[:4]
    return report
