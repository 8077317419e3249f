"""Functions made of any schedule of any model: run as plain Python they are the same to the bit."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator

from emitting import Parts, assert_bitwise
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_cases import Case, cases, eager_fails, emitted

from remat_gen.compile.fusible import fusible_in
from remat_gen.compile.fusing import write_fused
from remat_gen.ir.errors import TraceError
from remat_gen.ir.graph import Graph
from remat_gen.solver.compiled.fused import PartFigures
from remat_gen.solver.compiled.parts import Part, ends_of, longest_parts
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Run, Schedule

quick = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.explicit, Phase.generate],
)


def some_parts(seed: int) -> Parts:
    """Choose among the longest parts and their halves."""

    def choose(graph: Graph, problem: Problem, schedule: Schedule) -> tuple[Part, ...]:
        chance = random.Random(seed)
        fusible = fusible_in(graph)
        longest = longest_parts(problem, schedule, fusible)
        return tuple(p for part in longest for p in _cut(part, schedule, chance))

    return choose


def _cut(part: Part, schedule: Schedule, chance: random.Random) -> Iterator[Part]:
    halves = part.halves(schedule)
    if halves and chance.random() < 0.3:
        for half in halves:
            yield from _cut(half, schedule, chance)
    elif chance.random() < 0.8:
        yield part


@quick
@given(case=cases(), seed=st.integers(0, 2**16))
def test_parts_of_any_schedule_are_bitwise_as_eager(case: Case, seed: int) -> None:
    """And each returns what is read later, and nothing else."""

    def choose(graph: Graph, problem: Problem, schedule: Schedule) -> tuple[Part, ...]:
        parts = some_parts(seed)(graph, problem, schedule)
        figures = dict.fromkeys(parts, PartFigures(0.0, 0))
        written = write_fused(graph, problem, schedule, figures).texts
        assert set(written) == set(parts)
        for part, text in written.items():
            results = ends_of(problem, schedule, part).results
            names = [problem.values[v].name for v in results]
            assert names == [mark.name for mark in text.results]
            _assert_read(problem, schedule, part, results)
        return parts

    try:
        made = emitted(case, choose)
    except TraceError:
        assert eager_fails(case)
        return
    assert_bitwise(made)
    for function in _functions(made.tree()):
        _assert_straight(function)


def _assert_read(
    problem: Problem, schedule: Schedule, part: Part, results: tuple[int, ...]
) -> None:
    """Assert that each result is held by somebody, or read before it is made again."""
    steps = [
        step
        for number, segment in enumerate(schedule.segments)
        for index, step in enumerate(segment.steps)
        if (number, index) >= (part.segment, part.stop)
    ]
    for v in results:
        if problem.values[v].held.value != "free":
            continue
        touching = (
            operation
            for step in steps
            if isinstance(step, Run)
            for operation in [problem.operations[step.operation]]
            if v in operation.inputs or v in operation.outputs
        )
        assert v in next(touching).inputs


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("fused_"):
            yield node


def _assert_straight(function: ast.FunctionDef) -> None:
    """Assert that each name is made once, before it is read, and that nothing is made in vain."""
    made = {argument.arg for argument in function.args.args}
    read: set[str] = set()
    for statement in function.body:
        names = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
        used = {n.id for n in names if isinstance(n.ctx, ast.Load)}
        written = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        assert used <= made | {"torch", "F", "aten", "float", "pick_results"}
        assert written.isdisjoint(made)
        made, read = made | written, read | used
    assert isinstance(function.body[-1], ast.Return)
    tensors = [a for a in function.args.args if ast.unparse(a.annotation or a) == "Tensor"]
    assert {argument.arg for argument in tensors} <= read
