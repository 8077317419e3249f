"""From a model's source text to a generated module beside it, with modelled costs: quick."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from emitting_parts import CPU as CPU
from emitting_parts import blocks_run as blocks_run
from emitting_parts import measured_workspace as measured_workspace
from emitting_parts import target_of

from remat_gen.capture.load.load import Loaded, load
from remat_gen.capture.trace.trace import Traced, trace
from remat_gen.codegen.module.emit_module import emit_body
from remat_gen.ir.costs import Cost, Costs
from remat_gen.ir.graph import Graph
from remat_gen.ir.plan import HostCopies
from remat_gen.problem.host_copies_planned import with_host
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.compiled.fused import PartFigures
from remat_gen.solver.compiled.parts import Part
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.solve import Solver
from remat_gen.verification.compare import Comparison, Match, compare_steps
from remat_gen.verification.outcome import State, run_steps

Choose = Callable[[Problem], Schedule]
Parts = Callable[[Graph, Problem, Schedule], tuple[Part, ...]]

HEAD = """\
import torch
import torch.nn.functional as F
from torch import Tensor, nn

"""


def model_costs(traced: Traced) -> Costs:
    """Return costs that follow from the graph alone: bytes written, no workspace."""
    graph = traced.graph
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
    planned: Loaded

    @property
    def peak_bytes(self) -> int:
        """Return the replayed peak."""
        return replay(self.problem, self.schedule).peak_bytes

    def tree(self) -> ast.Module:
        """Return the syntax tree of the text."""
        return ast.parse(self.text)


def keep_all(problem: Problem) -> Schedule:
    """Retain everything."""
    return Solver(problem, "none").solve(2**60).schedule


def no_parts(graph: Graph, problem: Problem, schedule: Schedule) -> tuple[Part, ...]:
    """Compile nothing."""
    return ()


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
    costs: Callable[[Traced], Costs] = model_costs,
    parts: Parts = no_parts,
    copies: HostCopies | None = None,
) -> Emitted:
    """Write a model file, plan it, and write the generated module beside it.

    `parts` of the schedule become functions, which run as plain Python in what is loaded. With
    `copies` values may go to the host.
    """
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    loaded = load(path, model, None, "cpu")
    output = folder / f"{name}_remat.py"
    with loaded.importable():
        traced = trace(loaded.model, loaded.args, loaded.kwargs, path)
        problem = problem_of(traced.graph, costs(traced))
        problem = with_host(problem, traced.graph, copies) if copies else problem
        schedule = choose(problem)
        fused = dict.fromkeys(parts(traced.graph, problem, schedule), PartFigures(0.0, 0))
        text = emit_body(target_of(loaded, output), traced, problem, schedule, fused)
    output.write_text(text.replace("@compiled\n", ""), encoding="utf-8")
    planned = load(output, loaded.builder, loaded.inputs_name, "cpu")
    return Emitted(loaded, traced, problem, schedule, text, output, planned)


def assert_bitwise(emitted: Emitted) -> None:
    """Assert that two steps give eager's outputs, gradients, buffers and random streams."""
    for found in compared(emitted):
        assert found.match is Match.BITWISE, found


def compared(emitted: Emitted) -> list[Comparison]:
    """Run two steps of both models, and compare all that they leave behind."""
    state = State.of(emitted.loaded.model)
    args, kwargs = emitted.loaded.args, emitted.loaded.kwargs
    with torch.random.fork_rng(devices=[]):
        eager, planned = [
            run_steps(model, state, args, kwargs, steps=2)
            for model in (emitted.loaded.model, emitted.planned.model)
        ]
    return [*compare_steps(eager, planned, [{}] * len(eager))]
