"""What tests share that plan without measuring times, or emit without the pipeline."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch

from remat_gen.capture.device.kind import Time
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.profile.profile import profile
from remat_gen.capture.trace.trace import Traced, trace_loaded
from remat_gen.codegen.module.emit_module import Target
from remat_gen.ir.costs import Costs
from remat_gen.plan.emission import module_text
from remat_gen.plan.plan_names import schedule_of
from remat_gen.problem.host_copies_planned import planned_problem
from remat_gen.review.generated_module import Existing
from remat_gen.units.tracing_units import retrace_units

CPU = torch.device("cpu")


@contextmanager
def equal_times() -> Iterator[None]:
    """Let every operation that is measured warm up, and take the same time."""
    measuring = "remat_gen.capture.profile.profile"
    with (
        mock.patch(f"{measuring}.time_warm", lambda *_: Time(1.0)),
        mock.patch(f"{measuring}.time_again", lambda *_: Time(1.0)),
        mock.patch(f"{measuring}.copies_needed", lambda *_: 1),
    ):
        yield


def measured_workspace(traced: Traced) -> Costs:
    """Return costs with the workspace of each operation as it is."""
    with equal_times():
        return profile(traced.graph, CPU, traced.examples)


def target_of(loaded: Loaded, output: Path) -> Target:
    """Return what a model's module is emitted for: the CPU, at 60 % of eager's peak."""
    return Target(
        source=loaded.source,
        namespace=vars(loaded.module),
        model=loaded.model,
        builder=loaded.builder,
        output=output,
        command=f"remat-gen {loaded.path.name} --budget 60% -o {output.name}",
        device="cpu",
    )


def blocks_run(text: str) -> list[tuple[str, ...]]:
    """Return the classes of the blocks that a planned forward runs, each with its places.

    Loops are written out; a named argument stands as `name=…`, what is computed as source.
    """
    found: list[tuple[str, ...]] = []

    def visit(node: ast.AST, names: dict[str, int]) -> None:
        if isinstance(node, ast.For) and "step.run(" in ast.unparse(node):
            for i in eval(ast.unparse(node.iter)):
                for inner in node.body:
                    visit(inner, {**names, ast.unparse(node.target): i})
            return
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("step.run"):
            kind, *places = (ast.unparse(argument) for argument in node.args)
            given = (f"{k.arg}={ast.unparse(k.value)}" for k in node.keywords)
            found.append((kind, *(str(eval(place, dict(names))) for place in places), *given))
        for child in ast.iter_child_nodes(node):
            visit(child, names)

    visit(ast.parse(textwrap.dedent(text)), {})
    return found


def emit_again(existing: Existing) -> str:
    """Return a module's text as its plan says, from a new trace and no measurement."""
    existing.refuse_other_torch()
    plan, loaded = existing.plan, existing.load_original(fake=existing.plan.modelled is not None)
    units, asked = plan.units, (plan.dynamic, plan.fixed)
    traced = retrace_units(loaded, units) if units else trace_loaded(loaded, *asked)
    with loaded.importable():
        problem = planned_problem(traced.graph, plan)
        schedule = schedule_of(problem, plan.schedule)
        return module_text(loaded, traced, problem, schedule, plan, existing.path)
