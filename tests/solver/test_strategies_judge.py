"""The judge of all strategies: what it refuses, drops and tells."""

from __future__ import annotations

from strategy_problems import bare, chain, graph, judged

from remat_gen.solver.blocks.judged_runs import incumbent_of
from remat_gen.solver.published.local_forwards import droppable_values, with_local_forwards

CHAIN = chain(4, flagged=True)
ONCE = tuple(range(9))


def test_what_exceeds_the_budget_is_refused() -> None:
    incumbent = incumbent_of(CHAIN, 5)
    found = incumbent.offer(ONCE)
    assert found is not None and found.replay.peak_bytes == 6
    assert incumbent.found().runs is None
    incumbent = incumbent_of(CHAIN, 6)
    incumbent.offer(ONCE)
    assert incumbent.found().runs == ONCE


def test_runs_that_nobody_reads_are_dropped() -> None:
    assert judged(CHAIN, [*range(6), 4, 3, *range(6, 9)]).reruns == ()
    assert judged(bare(CHAIN), [*ONCE, 0]).reruns == ()


def test_runs_without_their_inputs_are_none() -> None:
    incumbent = incumbent_of(bare(CHAIN), 9)
    assert incumbent.offer([1, 0, *range(2, 9)]) is None
    assert incumbent.best is None


def test_each_better_schedule_is_told_and_the_first_that_fits_ends() -> None:
    told: list[float] = []
    incumbent = incumbent_of(CHAIN, 6, lambda _, time_us: told.append(time_us))
    dropped = droppable_values(CHAIN)
    slow = with_local_forwards(CHAIN, frozenset(sorted(dropped)[:2]), keep_last=False)
    incumbent.offer(slow)
    incumbent.offer_all([slow, ONCE])
    assert told == [11.0, 9.0]
    assert incumbent.found().lower_bound_us == 9.0


def test_a_segment_that_backward_reads_first_need_not_run_again() -> None:
    """f0 → f1 → f2 with f0 and f2 dropped: two segments, the second one is kept or run again."""
    problem = graph([[], [0], [1], [2, 1], [3, 0]], [1] * 5, forward=3)
    dropped = frozenset({0, 2})
    assert with_local_forwards(problem, dropped, keep_last=True) == (0, 1, 2, 3, 0, 4)
    assert with_local_forwards(problem, dropped, keep_last=False) == (0, 1, 2, 2, 3, 0, 4)
