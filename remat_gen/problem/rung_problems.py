"""The scheduling problem of a rung: that of a plan whose example is the longest step it admits."""

from __future__ import annotations

from dataclasses import replace

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.lower.shorter_steps import narrowed
from remat_gen.ir.costs import Costs
from remat_gen.ir.errors import TraceError
from remat_gen.ir.graph import Graph, Trait
from remat_gen.ir.rung import Rung
from remat_gen.problem.smaller_problems import written_over_as
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.law.problem import Problem


def rung_graph(graph: Graph, rung: Rung) -> Graph:
    """Return the graph of the longest steps that a rung admits.

    Raises:
        TraceError: the step has no such lengths.
    """
    try:
        return narrowed(graph, rung.numbers(graph.lengths))
    except (ArithmeticError, ValueError) as error:
        raise TraceError(f"--rungs {rung}: the step cannot be so short: {error}") from error


def rung_problem(there: Graph, costs: Costs, here: Problem) -> Problem:
    """Return the problem of a rung; what is written over is decided by the whole range's.

    While forward runs, what it draws and writes is recorded: more workspace of each operation.
    """
    problem = written_over_as(here, problem_of(there, costs))
    return with_recorded(problem, recorded_bytes(there, costs.alignment_bytes))


def with_recorded(problem: Problem, nbytes: int) -> Problem:
    """Return a problem whose forward operations have more workspace.

    Where backward runs one again nothing is recorded any more; to count it there is safe.
    """
    operations = (
        o if o.backward else replace(o, workspace_bytes=o.workspace_bytes + nbytes)
        for o in problem.operations
    )
    return replace(problem, operations=tuple(operations))


def recorded_bytes(graph: Graph, alignment: int) -> int:
    """Return the size of what a step records before it takes a rung.

    That is what forward writes, and the state of the generator that it draws from.
    """
    sizes = [graph.storages[graph.tensors[m.target].storage].nbytes for m in graph.mutations]
    kind = kind_of(next(iter(graph.tensors.values())).device)
    draws = any(Trait.RANDOM in operation.traits for operation in graph.operations)
    state = kind.rng_state_bytes if draws and not kind.is_accelerator else 0  # the host's, there
    return state + sum(-(-size // alignment) * alignment for size in sizes)
