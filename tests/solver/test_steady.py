"""A committed schedule is kept where it is about as good as the best that is found."""

from __future__ import annotations

from dataclasses import replace

import pytest
from committed_problems import committed, gpt, renamed, solved, written

from remat_gen.ir.paths import OUTERMOST
from remat_gen.solver.law.pins import pinned
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.solve import Solver
from remat_gen.solver.stable.committed_schedule import NAME, Committed
from remat_gen.solver.stable.warm_start import TOLERANCE, WIDENED

MOST = TOLERANCE[Effort.NORMAL]


def by_layer(problem: Problem, schedule: Schedule) -> dict[str, list[tuple[str, ...]]]:
    """Return what runs again before each backward operation of each layer."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for anchor, again in written(problem, schedule).reruns().items():
        inside = tuple(name.removeprefix(OUTERMOST.holding(anchor)) for name in again)
        found.setdefault(OUTERMOST.holding(anchor), []).append(inside)
    return found


@pytest.mark.parametrize(("percent", "layers"), [(40, 5), (80, 3), (60, 3)])
def test_other_layers_stay(percent: int, layers: int) -> None:
    old, new = gpt(4), gpt(layers)
    before = solved(old, percent)
    after = solved(new, percent, written(old, before.schedule))
    best = solved(new, percent)
    assert after.slower is not None and after.strategy == NAME
    assert after.replay.peak_bytes <= after.eager.peak_bytes * percent // 100
    assert after.replay.time_us <= best.replay.time_us * (1 + MOST)
    old_layers = by_layer(old, before.schedule)
    again = by_layer(new, after.schedule)
    changed = [layer for layer in again if again[layer] != old_layers.get(layer)]
    assert len(changed) <= 1 + WIDENED[-1] and "h.0" not in changed and "" not in changed


@pytest.mark.parametrize("strategy", ["auto", "rotor", "per-layer", "chen-sqrt"])
def test_the_same_problem_keeps_the_very_schedule(strategy: str) -> None:
    first = solved(gpt(4), 80, strategy=strategy)
    assert solved(gpt(4), 80, written(gpt(4), first.schedule), strategy) == first


@pytest.mark.parametrize("strategy", ["auto", "per-layer"])
def test_a_kept_schedule_is_kept_again(strategy: str) -> None:
    kept = solved(gpt(5), 80, committed(4, 80, strategy), strategy)
    assert solved(gpt(5), 80, written(gpt(5), kept.schedule), strategy) == kept


def test_it_is_not_kept_where_it_is_too_slow() -> None:
    """What was made for little memory re-runs too much where there is plenty."""
    old = committed(4, 40)
    best = solved(gpt(4), 100)
    assert solved(gpt(4), 100, old) == best
    assert solved(gpt(4), 40).replay.time_us > best.replay.time_us * (1 + MOST)


def test_it_is_kept_where_another_gains_next_to_nothing() -> None:
    """Costs that were measured again would choose another schedule."""
    old = solved(gpt(4), 60)
    noisy = replace(
        gpt(4),
        operations=tuple(
            replace(o, time_us=o.time_us * (1 + 0.01 * (p % 3)))
            for p, o in enumerate(gpt(4).operations)
        ),
    )
    assert solved(noisy, 60).schedule != old.schedule
    kept = solved(noisy, 60, written(gpt(4), old.schedule))
    assert kept.schedule == old.schedule
    assert kept.slower is not None and 0 <= kept.slower <= MOST


def test_thorough_keeps_only_what_is_as_quick() -> None:
    old, problem = committed(2, 80), gpt(3)
    best = Solver(problem, "rotor", effort=Effort.THOROUGH)
    steady = Solver(problem, "rotor", effort=Effort.THOROUGH, committed=old)
    budget = best.plain.peak_bytes * 80 // 100
    assert steady.solve(budget).replay.time_us <= best.solve(budget).replay.time_us


@pytest.mark.parametrize("percent", range(78, 30, -6))
def test_the_budget_is_kept_where_it_falls(percent: int) -> None:
    kept = solved(gpt(4), percent, committed(4, 80, "rotor"), "rotor")
    assert kept.replay.peak_bytes <= kept.eager.peak_bytes * percent // 100


def test_another_model_is_ignored() -> None:
    other = committed(4, 80)
    unlike = renamed(gpt(4), ".", "_")
    assert solved(unlike, 80, other) == solved(unlike, 80)
    assert solved(gpt(4), 80, Committed((), ())) == solved(gpt(4), 80)


def test_pins_come_first() -> None:
    old = committed(4, 60, "per-layer")
    again = {name for names in old.reruns().values() for name in names}
    problem = gpt(4)
    keep = next(p for p, o in enumerate(problem.operations) if o.name in again)
    pinned_problem = pinned(problem, {problem.operations[keep].outputs[0]}, set())
    assert keep not in solved(pinned_problem, 70, old, "per-layer").replay.reruns


@pytest.mark.parametrize("strategy", ["rotor", "per-layer", "chen-sqrt"])
def test_other_strategies_decide_nothing_by_a_search(strategy: str) -> None:
    """A new layer takes the schedule of an old one, or all is the strategy's own."""
    kept = solved(gpt(5), 60, committed(4, 60, strategy), strategy)
    best = solved(gpt(5), 60, strategy=strategy)
    assert kept.replay.peak_bytes <= kept.eager.peak_bytes * 60 // 100
    assert kept.replay.time_us <= best.replay.time_us * (1 + MOST)
    layers = list(map(str, by_layer(gpt(5), kept.schedule).values()))
    assert kept == best or max(layers.count(layer) for layer in layers) > 1
