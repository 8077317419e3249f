"""Plain enumeration for the exact search, and the graphs whose optima are known.

Dijkstra over all states (values there, operations that ran) with every possible free: no closure,
no laziness, no masks shared with the search. Forward operations run in order, each once; then any
operation whose inputs are there, backward ones once.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from remat_gen.solver.law import bare_graph
from remat_gen.solver.law.problem import Held, Operation, Problem, Value
from remat_gen.solver.solve import Solver

State = tuple[frozenset[int], frozenset[int]]
Node = tuple[float, int, Sequence[int]]


def bare(nodes: Sequence[Node], outputs: Sequence[int] = ()) -> Problem:
    """Return the bare problem of nodes (time, bytes, inputs)."""
    operations = tuple(
        Operation(f"n{i}", float(time), 0, tuple(inputs), (i,), backward=True)
        for i, (time, _, inputs) in enumerate(nodes)
    )
    values = tuple(
        Value(f"n{i}", nbytes, Held.STEP if i in outputs else Held.FREE)
        for i, (_, nbytes, _) in enumerate(nodes)
    )
    return Problem(operations, values)


def layered(count: int, seed: int) -> Problem:
    """Return a random forward pass with skips, and its backward pass, as a bare graph."""
    rng = random.Random(seed)
    nodes: list[Node] = []
    forward = count // 2
    users: list[list[int]] = [[] for _ in range(forward)]
    for i in range(forward):
        reads = {i - 1 if rng.random() < 0.7 else max(0, i - 1 - rng.randrange(6))} if i else set()
        if i and rng.random() < 0.4:
            reads.add(max(0, i - 1 - rng.randrange(15)))
        for u in reads:
            users[u].append(i)
        nodes.append((rng.randint(1, 100), rng.randint(1, 100), sorted(reads)))
    gradient: dict[int, int] = {}
    for i in reversed(range(forward)):
        reads = {gradient[u] for u in users[i]} | {*nodes[i][2]}
        reads |= {i} if rng.random() < 0.5 else set()
        gradient[i] = len(nodes)
        nodes.append((rng.randint(1, 100), rng.randint(1, 100), sorted(reads)))
    return bare(nodes)


def graph_of(problem: Problem) -> bare_graph.BareGraph:
    """Return a bare problem as the graph that people have."""
    nodes = (
        bare_graph.Node(o.name, o.time_us, value.nbytes, False, o.inputs)
        for o, value in zip(problem.operations, problem.values, strict=True)
    )
    held = (v for v, value in enumerate(problem.values) if value.held is Held.STEP)
    return bare_graph.BareGraph(tuple(nodes), frozenset(held))


def smallest(problem: Problem) -> int:
    """Return the least budget that auto finds for a bare problem."""
    return Solver(graph_of(problem), "auto").smallest_budget().nbytes


def least_time(problem: Problem, budget_bytes: int) -> float | None:
    """Return the least time within a budget over all schedules, None if there is none."""
    start: State = frozenset(() if problem.forward_count else problem.given), frozenset()
    queue: list[tuple[float, int, State]] = [(0.0, 0, start)]
    known = {start: 0.0}
    while queue:
        time_us, _, state = heapq.heappop(queue)
        if len(state[1]) == len(problem.operations):
            return time_us
        if time_us > known[state]:
            continue
        for cost, nbytes, after in _moves(problem, state):
            if nbytes <= budget_bytes and time_us + cost < known.get(after, float("inf")):
                known[after] = time_us + cost
                heapq.heappush(queue, (time_us + cost, len(known), after))
    return None


def least_peak(problem: Problem) -> int:
    """Return the least peak over all schedules."""
    start: State = frozenset(() if problem.forward_count else problem.given), frozenset()
    queue: list[tuple[int, int, State]] = [(0, 0, start)]
    known = {start: 0}
    while True:
        peak, _, state = heapq.heappop(queue)
        if len(state[1]) == len(problem.operations):
            return peak
        for _, nbytes, after in _moves(problem, state):
            worst = max(peak, nbytes)
            if worst < known.get(after, 1 << 60):
                known[after] = worst
                heapq.heappush(queue, (worst, len(known), after))


def _moves(problem: Problem, state: State) -> Iterator[tuple[float, int, State]]:
    """Yield each move's time, the bytes while it happens, and the state after it."""
    there, ran = state
    for v in there:
        if problem.values[v].held is Held.FREE:
            yield 0.0, 0, (there - {v}, ran)
    resident = sum(problem.values[v].nbytes for v in there)
    for p in _candidates(problem, ran):
        operation = problem.operations[p]
        if not there.issuperset(operation.inputs):
            continue
        made = sum(problem.values[v].nbytes for v in operation.outputs)
        after = there | set(operation.outputs)
        if len(ran | {p}) == problem.forward_count and p not in ran:
            after |= set(problem.given)
        nbytes = resident + made + operation.workspace_bytes
        yield operation.time_us, nbytes, (after, ran | {p})


def _candidates(problem: Problem, ran: frozenset[int]) -> list[int]:
    forward = problem.forward_count
    if len(ran) < forward:
        return [len(ran)]
    everything = range(len(problem.operations))
    return [
        p
        for p in everything
        if p not in ran or (problem.operations[p].rerunnable and (p < forward or not forward))
    ]


@st.composite
def dags(draw: st.DrawFn, most: int = 8) -> Problem:
    """Draw a bare graph of random sizes and times; some outputs live to the end."""
    count = draw(st.integers(1, most))
    nodes: list[Node] = []
    for i in range(count):
        reads = draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)) if i else []
        nodes.append((draw(st.integers(0, 9)), draw(st.integers(0, 9)), sorted(reads)))
    used = {u for _, _, reads in nodes for u in reads}
    ends = [i for i in range(count) if i not in used]
    return bare(nodes, draw(st.lists(st.sampled_from(ends), unique=True, max_size=2)))


def uniform(length: int, *, own_output: bool) -> Problem:
    """Return the unit chain: backward i reads forward i and backward i+1, or forward i+1 as well.

    Of 2L + 1 nodes the first L + 1 are f_0 … f_L; the last f_L is the loss, from which backward
    begins.
    """
    nodes: list[Node] = [(1, 1, [i - 1] if i else []) for i in range(length + 1)]
    gradient = length
    for i in reversed(range(length)):
        reads = {i, gradient} | ({i + 1} if own_output else set())
        nodes.append((1, 1, sorted(reads)))
        gradient = len(nodes) - 1
    return bare(nodes)


def dense(layers: int) -> Problem:
    """Return the graph in which every forward and every backward reads all forwards before it."""
    nodes: list[Node] = [(1, 1, list(range(i))) for i in range(layers)]
    for i in reversed(range(layers)):
        nodes.append((1, 1, [*range(i + 1), *([len(nodes) - 1] if i < layers - 1 else [])]))
    return bare(nodes)


def nine_nodes() -> Problem:
    """Return DESIGN's graph on which frontier-advancing stages are infeasible at budget 5."""
    names = "x t a s b v z0 z y".split()
    reads = ["", "x", "t", "x", "s", "a b", "v", "z0", "z a b"]
    sizes = [1, 3, 1, 2, 1, 1, 4, 1, 1]
    places = [[names.index(u) for u in read.split()] for read in reads]
    return bare([(1, size, place) for size, place in zip(sizes, places, strict=True)])


def ladder(depth: int) -> Problem:
    """Return the unit U-Net ladder with a loss, which is its own gradient.

    Backward reads its node's output, and of each successor the output and the gradient.
    """
    down = list(range(depth))
    nodes: list[list[int]] = [[i - 1] if i else [] for i in down] + [[depth - 1]]
    for level in reversed(down):
        nodes.append([len(nodes) - 1, level])
    nodes.append([len(nodes) - 1])  # the loss
    successors: list[list[int]] = [[] for _ in nodes]
    for i, reads in enumerate(nodes):
        for u in reads:
            successors[u].append(i)
    gradients: dict[int, int] = {}
    for i in reversed(range(len(nodes) - 1)):
        reads = {i, *successors[i], *(gradients[s] for s in successors[i] if s in gradients)}
        gradients[i] = len(nodes)
        nodes.append(sorted(reads))
    return bare([(1, 1, reads) for reads in nodes])
