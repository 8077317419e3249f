"""Bare graphs for the tests of the published strategies, and oracles that try everything."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from remat_gen.solver.blocks.judged_runs import SearchFunction, incumbent_of
from remat_gen.solver.contest.entrants import searched
from remat_gen.solver.law.problem import Held, Operation, Problem, Value
from remat_gen.solver.law.replay import Replay
from remat_gen.solver.law.search_types import Effort, Found

State = tuple[int, ...]


def graph(
    inputs: Sequence[Sequence[int]],
    sizes: Sequence[int],
    times: Sequence[float] | None = None,
    forward: int = 0,
    outputs: Sequence[int] = (),
) -> Problem:
    """Return a bare graph (DESIGN.md, section 8); the first `forward` nodes are forward ones."""
    operations = tuple(
        Operation(f"n{i}", times[i] if times else 1.0, 0, tuple(read), (i,), i >= forward)
        for i, read in enumerate(inputs)
    )
    held = [Held.STEP if i in outputs else Held.FREE for i in range(len(sizes))]
    values = tuple(Value(f"n{i}", sizes[i], held[i]) for i in range(len(sizes)))
    return Problem(operations, values)


def chain(length: int, *, flagged: bool, both: bool = False) -> Problem:
    """Return the uniform chain: 2 · length + 1 nodes, backward i needs forward i, backward i + 1.

    Its last forward node is the loss. With `both`, backward i also needs forward i + 1.
    """
    inputs: list[list[int]] = [[]]
    inputs += [[i] for i in range(length)]
    for i in reversed(range(length)):
        needs = [i, len(inputs) - 1]
        inputs.append(sorted({*needs, i + 1}) if both else needs)
    n = len(inputs)
    return graph(inputs, [1] * n, forward=length + 1 if flagged else 0)


def bare(problem: Problem) -> Problem:
    """Return a flagged graph without its flags."""
    return replace(problem, operations=tuple(replace(o, backward=True) for o in problem.operations))


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 8, *, flagged: bool = False) -> Problem:
    """Draw a bare graph with random sizes, times, flags and outputs."""
    n = draw(st.integers(1, max_nodes))
    inputs = [
        draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)) if i else []
        for i in range(n)
    ]
    sizes = draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))
    times = [float(t) for t in draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))]
    forward = draw(st.integers(0, n)) if flagged else 0
    outputs = draw(st.lists(st.integers(0, n - 1), max_size=2, unique=True))
    return graph(inputs, sizes, times, forward, outputs)


@st.composite
def steps(draw: st.DrawFn, max_forward: int = 4, *, flagged: bool = False) -> Problem:
    """Draw a small training step as a bare graph: re-runs help in most budgets below its peak."""
    n = draw(st.integers(2, max_forward))
    inputs: list[list[int]] = [[]]
    for i in range(1, n):
        inputs.append(sorted({i - 1, draw(st.integers(0, i - 1))}))
    for i in reversed(range(n)):
        further = draw(st.lists(st.integers(0, n - 1), max_size=1))
        inputs.append(sorted({i, len(inputs) - 1, *further}))
    sizes = draw(st.lists(st.integers(1, 4), min_size=2 * n, max_size=2 * n))
    times = [float(t) for t in draw(st.lists(st.integers(1, 9), min_size=2 * n, max_size=2 * n))]
    return graph(inputs, sizes, times, n if flagged else 0)


def budgets(problem: Problem) -> range:
    """Return all budgets from the largest operation to the peak with nothing re-run."""
    largest = max(
        sum(problem.values[v].nbytes for v in {*operation.inputs, *operation.outputs})
        for operation in problem.operations
    )
    return range(largest, plain_peak(problem) + 1)


def plain_peak(problem: Problem) -> int:
    """Return the peak of running in the given order with nothing re-run."""
    return judged(problem, range(len(problem.operations))).peak_bytes


def judged(problem: Problem, runs: Sequence[int]) -> Replay:
    """Return what runs cost."""
    found = incumbent_of(problem, 0).offer(runs)
    assert found is not None
    return found.replay


def check(search: SearchFunction, problem: Problem, budget: int) -> Found:
    """Search, and check what every strategy promises; return what it found."""
    heard: list[tuple[tuple[int, ...], float]] = []
    hear = heard.append
    found = searched(search, problem, budget, Effort.QUICK, lambda runs, us: hear((runs, us)))
    once_us = sum(operation.time_us for operation in problem.operations)
    if found.runs is None:
        assert not heard
        return found
    figures = judged(problem, found.runs)
    assert figures.peak_bytes <= budget
    assert set(found.runs) == set(range(len(problem.operations)))
    assert found.lower_bound_us <= figures.time_us + 1e-6
    assert figures.time_us >= once_us
    assert heard[-1] == (found.runs, figures.time_us)
    assert all(a[1] >= b[1] for a, b in itertools.pairwise(heard))
    return found


def time_us(problem: Problem, found: Found) -> float | None:
    """Return the time of what was found, None for nothing."""
    if found.runs is None:
        return None
    return sum(problem.operations[p].time_us for p in found.runs)


def least_time_anyhow(problem: Problem, budget: int) -> float | None:
    """Return the least time of all schedules of a bare graph, in any order; None if none fits."""
    n = len(problem.operations)

    def moves(state: State) -> Iterator[tuple[State, int]]:
        done, resident = state
        for p in range(n):
            yield (done | 1 << p, resident | 1 << p), p
        for v in range(n):
            if resident >> v & 1 and problem.values[v].held is Held.FREE:
                yield (done, resident & ~(1 << v)), -1

    return _dijkstra(problem, budget, (0, 0), moves, lambda state: state[0] == (1 << n) - 1)


def least_time_in_stages(problem: Problem, budget: int) -> float | None:
    """Return the least time of the schedules in stages of the given order; one output each.

    In the stage of an operation, re-runs stand before it. Forward operations have no re-runs,
    backward ones only those of forward ones; a bare graph has both everywhere.
    """
    n, forward = len(problem.operations), problem.forward_count
    given = sum(1 << v for v in problem.given)

    def moves(state: State) -> Iterator[tuple[State, int]]:
        stage, resident = state
        begins = stage == forward and bool(given)  # backward: the gradient comes before all else
        if begins and resident & given != given:
            yield (stage, resident | given), -1
        else:
            again = range(min(stage, forward or n)) if stage >= forward else ()
            for p in again:
                if problem.operations[p].rerunnable:
                    yield (stage, resident | _made(problem, p)), p
            if stage < n:
                yield (stage + 1, resident | _made(problem, stage)), stage
        for v in range(len(problem.values)):
            kept = begins and given >> v & 1
            if resident >> v & 1 and problem.values[v].held is Held.FREE and not kept:
                yield (stage, resident & ~(1 << v)), -1

    return _dijkstra(problem, budget, (0, 0), moves, lambda state: state[0] == n)


def _made(problem: Problem, p: int) -> int:
    return sum(1 << v for v in problem.operations[p].outputs)


def _dijkstra(
    problem: Problem,
    budget: int,
    start: State,
    moves: Callable[[State], Iterator[tuple[State, int]]],
    done: Callable[[State], bool],
) -> float | None:
    """Return the least time to a state that is `done`; the last number of a state is resident."""
    best = {start: 0.0}
    queue: list[tuple[float, State]] = [(0.0, start)]
    while queue:
        took, state = heapq.heappop(queue)
        if done(state):
            return took
        if best[state] < took:
            continue
        for after, p in moves(state):
            if p >= 0 and not _can_run(problem, p, state[-1], budget):
                continue
            cost = took + (problem.operations[p].time_us if p >= 0 else 0.0)
            if cost < best.get(after, float("inf")):
                best[after] = cost
                heapq.heappush(queue, (cost, after))
    return None


def _can_run(problem: Problem, p: int, resident: int, budget: int) -> bool:
    operation = problem.operations[p]
    there = sum(v.nbytes for i, v in enumerate(problem.values) if resident >> i & 1)
    made = sum(problem.values[v].nbytes for v in operation.outputs)
    ready = all(resident >> v & 1 for v in operation.inputs)
    return ready and there + made + operation.workspace_bytes <= budget
