"""All programs a strategy has for a problem, from the smallest peak to the least time.

Nothing here knows the budget: a budget only chooses among programs that are there anyway, so that
more memory never costs time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from remat_gen.solver.blocks.block_chain import Chain
from remat_gen.solver.blocks.block_option import BlockChoices
from remat_gen.solver.blocks.local_block import gradients, localise
from remat_gen.solver.blocks.option_grid import grid_choices, grid_for
from remat_gen.solver.blocks.partition import partition
from remat_gen.solver.blocks.simple_options import simple_choices
from remat_gen.solver.blocks.simple_programs import in_segments, keep_all, per_layer
from remat_gen.solver.chain.chain_costs import ChainCosts
from remat_gen.solver.chain.chain_moves import Moves
from remat_gen.solver.chain.recurrence import ChainTable
from remat_gen.solver.improve.budget_grid import BudgetGrid, pareto, quickest
from remat_gen.solver.improve.memory_measure import MeasuredProgram, started
from remat_gen.solver.improve.problem_arrays import ProblemArrays, arrays_of
from remat_gen.solver.improve.ruin_and_recreate import IN_SEGMENTS, lowered
from remat_gen.solver.improve.work_limits import Work, work_for
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
    """Programs in order of their peak."""

    problem: Problem
    arrays: ProblemArrays
    chain: Chain
    eager: MeasuredProgram
    candidates: list[MeasuredProgram]
    asked: int
    unproved: int
    ladder: BudgetGrid | None = None

    def known(self, budget: int) -> MeasuredProgram | None:
        """Return the quickest program that fits `budget` as it was found, or None."""
        return quickest(self.candidates, budget)

    def best(self, budget: int, progress: Progress = silent) -> MeasuredProgram | None:
        """Return the quickest program whose peak fits `budget`, improved; or None."""
        return self.ladder.best(budget, progress) if self.ladder else self.known(budget)

    def smallest(self) -> MeasuredProgram:
        """Return the program of least peak."""
        return min(self.candidates, key=lambda c: (c.peak_bytes, c.time_us, c.program.segments))


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
    chain, arrays = partition(problem), arrays_of(problem)
    eager = started(arrays, keep_all(problem, chain)).candidate()
    front = Front(problem, arrays, chain, eager, [], 0, 0)
    if strategy != "per-layer":
        front.candidates.append(eager)
    if strategy in ("per-layer", "rockmate"):
        front.candidates.append(started(arrays, per_layer(problem, chain)).candidate())
    if rotor is not None:
        front.candidates += rotor.candidates
    elif strategy in ("rotor", "rockmate"):
        for each in (chain, *_finer(problem, chain, (SINGLE,))):
            _add_simple(front, each, progress)
    if strategy == "rockmate":
        for each in _solved_chains(problem, chain):
            _add_solved(front, each, progress)
    front.candidates = pareto(front.candidates)
    if strategy == "rockmate":
        _climb(front, work_for(len(problem.operations), effort))
    return front


def _climb(front: Front, work: Work) -> None:
    """Add programs of ever lower peak, and set up the improvement of all."""
    least = started(front.arrays, front.smallest().program)
    more = lowered(least, front.eager.time_us, IN_SEGMENTS)
    front.candidates = pareto(front.candidates + more)
    front.ladder = BudgetGrid(front.arrays, front.eager, front.candidates, work, IN_SEGMENTS)


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


def _add_simple(front: Front, chain: Chain, progress: Progress) -> None:
    """Add the programs of rotor's two options for each block."""
    costs = _costs(front, chain)
    simple = {block: simple_choices(block) for block in dict.fromkeys(costs.blocks)}
    front.candidates += _programs(front, costs, [simple[block] for block in costs.blocks], progress)


def _add_solved(front: Front, chain: Chain, progress: Progress) -> None:
    """Add the programs of the options that z3 finds."""
    costs = _costs(front, chain)
    distinct = list(dict.fromkeys(costs.blocks))
    with_choices = sum(bool(block.backward) for block in distinct)
    choices = {}
    for number, block in enumerate(distinct, 1):
        report = partial(progress, "solve block", number, len(distinct))
        report()
        result = grid_choices(block, grid_for(block, with_choices), report)
        front.asked += result.asked
        front.unproved += result.unproved
        choices[block] = result.choices
    found = [choices[block] for block in costs.blocks]
    front.candidates += _programs(front, costs, found, progress)


def _costs(front: Front, chain: Chain) -> ChainCosts:
    grads = gradients(front.problem, chain)
    blocks = [localise(front.problem, chain, grads, i) for i in range(len(chain.blocks))]
    return ChainCosts(front.problem, chain, blocks)


def _programs(
    front: Front, costs: ChainCosts, choices: list[BlockChoices], progress: Progress
) -> list[MeasuredProgram]:
    moves = Moves(costs, choices)
    slots = max(SLOTS, SLOTS_PER_BLOCK * costs.n)
    slot = max(1, front.eager.peak_bytes // slots)
    table = ChainTable(moves, slot, slots * 3 // 2, progress)
    points = evenly(range(table.count()), STEPS)
    programs = dict.fromkeys(tuple(table.runs(point)) for point in points)
    found = []
    for number, runs in enumerate(programs, 1):
        progress("program", number, len(programs))
        program = in_segments(front.problem, front.chain, runs)
        found.append(started(front.arrays, program).candidate())
    return found
