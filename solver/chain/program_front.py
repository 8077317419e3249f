"""All programs a strategy has for a problem, from the smallest peak to the least time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from remat_gen.solver.blocks.block_chain import Chain
from remat_gen.solver.blocks.option_grid import grid_choices, grid_for, simple_choices
from remat_gen.solver.blocks.partition import partition
from remat_gen.solver.blocks.simple_programs import in_segments, keep_all, per_layer
from remat_gen.solver.chain.chain_costs import ChainCosts
from remat_gen.solver.chain.recurrence import ChainTable
from remat_gen.solver.improve.budget_grid import BudgetGrid, pareto, work_for
from remat_gen.solver.improve.memory_measure import started
from remat_gen.solver.improve.problem_arrays import ProblemArrays
from remat_gen.solver.improve.ruin_and_recreate import IN_SEGMENTS, lowered
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort, Progress, evenly, silent

SLOTS = 500  # at least, for the peak with nothing re-run
SLOTS_PER_BLOCK = 20
SINGLE = 1  # operation per block: rotor's own chain, where the graph is one
FINE_LIMITS = (12, 8)  # operations per block of finer chains, tried as well: quick to solve
FINE_BLOCKS = 120  # at most; longer chains gain little from it and take long
SINGLES = 1.1  # operations per block, at most, where a graph is a chain of single ones
STEPS = 250  # programs read from one table


@dataclass(slots=True)
class Front:
    """The programs of a strategy, in a grid; and of how many options z3 was asked, in vain or not.

    A budget only chooses among programs that are there anyway: more memory never costs time.
    """

    problem: Problem
    chain: Chain
    grid: BudgetGrid
    asked: int = 0
    unproved: int = 0


def build_front(
    problem: Problem,
    strategy: str,
    progress: Progress = silent,
    effort: Effort = Effort.NORMAL,
    rotor: Front | None = None,
) -> Front:
    """Search all programs of a strategy; rockmate's begin with rotor's, if they are known.

    `progress` hears "solve block" before each of z3's answers, "chain", "program" and "improve".
    """
    chain, arrays = partition(problem), ProblemArrays(problem)
    eager = started(arrays, keep_all(problem, chain)).candidate()
    grid = BudgetGrid(arrays, eager, [], moving=IN_SEGMENTS)
    front = Front(problem, chain, grid)
    if strategy != "per-layer":
        grid.candidates.append(eager)
    if strategy in ("per-layer", "rockmate"):
        grid.candidates.append(started(arrays, per_layer(problem, chain)).candidate())
    if rotor is not None:
        grid.candidates += rotor.grid.candidates
    elif strategy in ("rotor", "rockmate"):
        for each in (chain, *_finer(problem, chain, (SINGLE,))):
            _add(front, each, progress, solved=False)
    if strategy == "rockmate":
        for each in _solved_chains(problem, chain):
            _add(front, each, progress, solved=True)
    grid.candidates = pareto(grid.candidates)
    if strategy == "rockmate":
        least = started(arrays, grid.candidates[0].program)
        more = lowered(least, eager.time_us, IN_SEGMENTS)
        grid.candidates = pareto(grid.candidates + more)
        grid.work = work_for(len(problem.operations), effort)
    return front


def _finer(problem: Problem, chain: Chain, limits: Sequence[int]) -> Iterator[Chain]:
    """Yield chains of smaller blocks, as far as that makes others, and not too many of them."""
    for fine in (partition(problem, limit) for limit in limits):
        if len(chain.blocks) < len(fine.blocks) <= FINE_BLOCKS:
            yield fine


def _solved_chains(problem: Problem, chain: Chain) -> Iterator[Chain]:
    """Yield the chains whose blocks z3 solves.

    Of what is a chain of single operations, only the coarsest of the finer ones: z3 takes minutes
    for its long blocks, which rotor's own recurrence goes through as a whole.
    """
    finer = list(_finer(problem, chain, FINE_LIMITS))
    singles = len(partition(problem, SINGLE).blocks) * SINGLES >= problem.forward_count
    yield from finer[:1] if finer and singles else (chain, *finer)


def _add(front: Front, chain: Chain, progress: Progress, *, solved: bool) -> None:
    """Add the programs of a chain: of the options that z3 finds for its blocks, or of rotor's."""
    costs = ChainCosts(front.problem, chain)
    distinct = list(dict.fromkeys(costs.blocks))
    with_choices = sum(bool(block.backward) for block in distinct)
    choices = {}
    for number, block in enumerate(distinct, 1):
        if not solved:
            choices[block] = simple_choices(block)
            continue
        report = partial(progress, "solve block", number, len(distinct))
        report()
        grid = grid_for(block, with_choices)
        choices[block], asked, unproved = grid_choices(block, grid, report)
        front.asked += asked
        front.unproved += unproved
    slots = max(SLOTS, SLOTS_PER_BLOCK * costs.n)
    slot = max(1, front.grid.plain.peak_bytes // slots)
    of_blocks = [choices[block] for block in costs.blocks]
    table = ChainTable(costs, of_blocks, slot, slots * 3 // 2, progress)
    points = evenly(range(table.count()), STEPS)
    programs = dict.fromkeys(tuple(table.runs(point)) for point in points)
    for number, runs in enumerate(programs, 1):
        progress("program", number, len(programs))
        program = in_segments(front.problem, front.chain, runs)
        front.grid.candidates.append(started(front.grid.arrays, program).candidate())
