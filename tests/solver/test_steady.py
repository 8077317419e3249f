"""A committed schedule is kept where it is about as good as the best that is found."""

from __future__ import annotations

from dataclasses import replace

import pytest
from committed_problems import committed, gpt, renamed, solved, written

from remat_gen.solver.committed import Committed
from remat_gen.solver.layers import layer_of
from remat_gen.solver.pins import pinned
from remat_gen.solver.problem import Problem
from remat_gen.solver.schedule import Schedule
from remat_gen.solver.search import Effort
from remat_gen.solver.solve import Solver
from remat_gen.solver.steady import NAME, TOLERANCE

MOST = TOLERANCE[Effort.NORMAL]


def by_layer(problem: Problem, schedule: Schedule) -> dict[str, list[tuple[str, ...]]]:
    """Return what runs again before each backward operation of each layer."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for anchor, again in written(problem, schedule).reruns().items():
        inside = tuple(name.removeprefix(layer_of(anchor)) for name in again)
        found.setdefault(layer_of(anchor), []).append(inside)
    return found


@pytest.mark.parametrize("percent", [80, 60, 40])
@pytest.mark.parametrize("layers", [3, 5])
def test_other_layers_stay(percent: int, layers: int) -> None:
    old, new = gpt(4), gpt(layers)
    before = solved(old, percent)
    after = solved(new, percent, written(old, before.schedule))
    best = solved(new, percent)
    assert after.replay.peak_bytes <= Solver(new).plain.peak_bytes * percent // 100
    assert after.replay.time_us <= best.replay.time_us * (1 + MOST)
    stayed = [
        layer
        for layer, again in by_layer(new, after.schedule).items()
        if again == by_layer(old, before.schedule).get(layer)
    ]
    assert len(stayed) >= 3  # the last one's, and what is outside of all layers, may change


def test_the_same_problem_keeps_the_very_schedule() -> None:
    for strategy in ("auto", "rotor", "rockmate"):
        first = solved(gpt(4), 50, strategy=strategy)
        again = solved(gpt(4), 50, written(gpt(4), first.schedule), strategy)
        assert again == first


def test_a_kept_schedule_is_kept_again() -> None:
    kept = solved(gpt(5), 60, committed(4, 60))
    assert kept.strategy == NAME and kept.slower is not None
    assert solved(gpt(5), 60, written(gpt(5), kept.schedule)) == kept


def test_it_is_not_kept_where_it_is_too_slow() -> None:
    """What was made for little memory re-runs too much where there is plenty."""
    old = committed(4, 40)
    best = solved(gpt(4), 100)
    assert solved(gpt(4), 100, old) == best
    assert solved(gpt(4), 40).replay.time_us > best.replay.time_us * (1 + MOST)


def test_it_is_kept_for_hardly_less_time() -> None:
    """Costs that were measured again choose another schedule, which gains next to nothing."""
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
    solver = Solver(gpt(5), "auto", effort=Effort.THOROUGH, committed=committed(4, 60))
    best = Solver(gpt(5), "auto", effort=Effort.THOROUGH)
    budget = best.plain.peak_bytes * 60 // 100
    assert solver.solve(budget).replay.time_us <= best.solve(budget).replay.time_us


def test_the_budget_is_kept_where_it_falls() -> None:
    old = committed(4, 60)
    kept = solved(gpt(4), 57, old)
    assert kept.replay.peak_bytes <= kept.eager.peak_bytes * 57 // 100


def test_another_model_is_ignored() -> None:
    other = written(renamed(gpt(4), "", ""), solved(gpt(4), 60).schedule)
    unlike = renamed(renamed(gpt(4), "h.", "blocks."), "_", "x")
    assert solved(unlike, 60, other) == solved(unlike, 60)
    assert solved(gpt(4), 60, Committed((), ())) == solved(gpt(4), 60)


def test_pins_come_first() -> None:
    old = committed(4, 60)
    names = [value.name for value in gpt(4).values]
    keep = names.index("h.1.gelu.0")
    problem = pinned(gpt(4), {keep}, set())
    kept = solved(problem, 70, old)
    again = [problem.operations[p].name for p in kept.replay.reruns]
    assert "h.1.gelu" not in again


@pytest.mark.parametrize("strategy", ["rockmate", "rotor", "per-layer", "chen-sqrt"])
def test_with_any_strategy(strategy: str) -> None:
    kept = solved(gpt(5), 60, committed(4, 60, strategy), strategy)
    best = solved(gpt(5), 60, strategy=strategy)
    assert kept.replay.peak_bytes <= kept.eager.peak_bytes * 60 // 100
    assert kept.replay.time_us <= best.replay.time_us * (1 + MOST)
