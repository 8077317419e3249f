"""A relaxation that holds for every schedule: an integer program with memory at some first runs.

*Stages* p_1 … p_m are operations whose first runs come in this order in every schedule; interval i,
of 0 … m, ends with the first run of p_{i+1}. Variables:
- X[q,i], 0 or 1: operation q runs in interval i (counted once, however often it does);
- K[v,i], 0 or 1: value v is there while p_i runs, and still after it;
- E[q]: how often q runs again, at least the number of its intervals beyond one.
Rows: an operation needs each value it reads from K of the interval's start or made within it; K
needs K of the stage before or a run in between; memory holds at each stage. With every operation a
stage, in a fixed order, this is Checkmate's program (Jain et al. 2020). Rows *within* (q,i),
0 < i < m: while q runs in interval i, a value that is there at both of its ends and is not made
within is there too: S[v,i] >= K[v,i] + K[v,i+1] - 1 - X[producer,i].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint
from scipy.sparse import csr_matrix

from remat_gen.solver.stages.first_run_order import FirstRuns
from remat_gen.solver.stages.milp import quiet_milp
from remat_gen.solver.stages.stage_rows import StageRows
from remat_gen.solver.states.bit_graph import BitGraph
from remat_gen.solver.states.bit_sets import mask_of

ROOT = 20
BRANCHED = 60  # where it does not end at its root: then cuts and heuristics take most of the time
LARGE = 6000  # entries: from here on the root's time grows as their square
ONE_STAGE = 16  # what part of it a node of one stage takes: such programs shrink most
EXACT = 1e-9  # of the re-runs' time: where HiGHS stops
ROUGH = 2e-3  # of the step's time, likewise, where a plan is but a sketch
STEP = 1.0  # the time of a step that runs nothing again, as `_unit` has it
ROUGH_NODES = 1  # strong branching would take most of the time, and gains nothing
NO_RENS = {"mip_heuristic_run_rens": False}
"""A heuristic that takes up to half of a program's time on its way to an optimum, and spares no
nodes; where the first good solution is enough, it finds that."""
INFEASIBLE = 2  # scipy's status of a program without a solution


@dataclass(frozen=True, slots=True)
class StagePlan:
    """An optimum of the relaxation: what runs in each interval, what is there at its start."""

    stages: tuple[int, ...]
    runs: tuple[int, ...]
    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StageSolution:
    """`infeasible` is proved; `bound_us` holds for all schedules that the order admits.

    `work` is the number of the program's entries times the nodes of HiGHS's tree, about 8 µs each;
    programs of one stage count for less. The root counts for `ROOT` nodes, of large programs for
    more, and for `BRANCHED` where the program was `branched`.
    """

    infeasible: bool
    bound_us: float
    plan: StagePlan | None = None
    work: int = 0
    branched: bool = False


def solve_stages(
    graph: BitGraph,
    order: FirstRuns,
    budget_bytes: int,
    stages: tuple[int, ...],
    work: int,
    *,
    within: frozenset[tuple[int, int]] = frozenset(),
    hard: bool = False,
) -> StageSolution:
    """Solve the program by HiGHS, within about as much work as given; not at all if it is less.

    Rows `within` are each of an operation and the stage at the interval's start. A `hard` program
    is not expected to end at its root.
    """
    rows = StageRows(graph, order, budget_bytes, stages)
    if not rows.build(sorted(within)):
        return StageSolution(True, float("inf"))
    entries = len(rows.entries)
    one = len(stages) == 1
    root = ROOT * max(entries, LARGE) // LARGE
    node_work = max(1, entries // ONE_STAGE if one else entries)
    if node_work * (max(root, BRANCHED) if hard else root) > work:
        return StageSolution(False, 0.0, work=work)
    result = _minimise(rows, 1 + work // node_work - root, EXACT)
    nodes = int(getattr(result, "mip_node_count", 0) or 0)
    branched = nodes > 1 and not one
    took = node_work * (nodes + (max(root, BRANCHED) if branched else root))
    return replace(_outcome(rows, result, took), branched=branched)


def sketch_stages(
    graph: BitGraph, order: FirstRuns, budget_bytes: int, stages: tuple[int, ...]
) -> StageSolution:
    """Solve the program to `ROUGH` only, at little more than its root: its bound still holds."""
    rows = StageRows(graph, order, budget_bytes, stages)
    if not rows.build():
        return StageSolution(True, float("inf"))
    return _outcome(rows, _minimise(rows, ROUGH_NODES, ROUGH, STEP), 0, STEP)


def relaxed_stages(
    graph: BitGraph, order: FirstRuns, budget_bytes: int, stages: tuple[int, ...]
) -> list[list[float]] | None:
    """Return K of the linear relaxation, for each stage of every value; None without a solution."""
    rows = StageRows(graph, order, budget_bytes, stages)
    if not rows.build():
        return None
    result = _minimise(rows, 1, EXACT, relaxed=True)
    if result.x is None:
        return None
    values = range(len(graph.nbytes))
    return [[float(result.x[rows.k(v, i)]) for v in values] for i in range(1, len(stages) + 1)]


def _outcome(rows: StageRows, result: Any, work: int, constant: float = 0.0) -> StageSolution:
    if result.status == INFEASIBLE:
        return StageSolution(True, float("inf"), work=work)
    bound = max(0.0, (result.mip_dual_bound or 0.0) - constant) * _unit(rows)
    plan = None if result.x is None else _plan(rows, result.x)
    return StageSolution(False, rows.graph.total_us + bound, plan, work)


def _unit(rows: StageRows) -> float:
    """Return what times are divided by: HiGHS's tolerances are absolute."""
    return max(rows.graph.total_us, 1e-30)


def _minimise(
    rows: StageRows, node_limit: int, gap: float, constant: float = 0.0, *, relaxed: bool = False
) -> Any:
    """Minimise the re-runs' time and a constant, which is a last column: the gap is of the sum."""
    times = np.array(rows.graph.time_us) / _unit(rows)
    cost = np.zeros(rows.size + 1)
    cost[rows.e(0) : rows.e(0) + len(times)] = times
    cost[-1] = constant
    r, columns, factors = zip(*rows.entries, strict=True)
    matrix = csr_matrix((factors, (r, columns)), shape=(len(rows.low), len(cost)))
    return quiet_milp(
        cost,
        constraints=LinearConstraint(matrix, rows.low, rows.high),
        bounds=Bounds([*rows.least, 1], [*rows.most, 1]),
        integrality=None if relaxed else [*rows.integral(), 0],
        options={"node_limit": node_limit, "mip_rel_gap": gap},
        unasked=NO_RENS if gap == EXACT else None,
    )


def _plan(rows: StageRows, x: Any) -> StagePlan:
    m, values = len(rows.stages), len(rows.graph.nbytes)
    runs = [
        mask_of(q for q in range(rows.graph.count) if x[rows.x(q, i)] > 0.5) for i in range(m + 1)
    ]
    kept = [mask_of(v for v in range(values) if x[rows.k(v, i)] > 0.5) for i in range(1, m + 1)]
    return StagePlan(rows.stages, tuple(runs), (0, *kept))
