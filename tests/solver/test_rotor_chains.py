"""Rotor's chain profiles: never slower than its recurrence, and the least time of short ones."""

from __future__ import annotations

from math import comb
from pathlib import Path

import pytest
from brute_force import least_time as least_of_all
from hypothesis import given, settings
from hypothesis import strategies as st
from rotor_recurrence import least_time

from remat_gen.bare.graph_file import read_instance
from remat_gen.bare.rotor_file import ChainProfile, parse_chain, problem_of
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.solve import InfeasibleError, Solver

INSTANCE = Path(__file__).parent / "rotor_chain.txt"
TAPE = 50  # bytes, of which no second one fits


@st.composite
def _profiles(draw: st.DrawFn, most: int) -> ChainProfile:
    count = draw(st.integers(1, most))

    def numbers(least: int, most: int, number: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(least, most), min_size=number, max_size=number)))

    x, more = numbers(1, 4, count + 1), numbers(0, 4, count + 1)
    whole = tuple(a + b for a, b in zip(x, more, strict=True))
    fw, bw = numbers(1, 9, count), numbers(1, 9, count + 1)
    return ChainProfile(fw, bw, x, whole, numbers(0, 3, count), numbers(0, 3, count + 1))


def _auto(profile: ChainProfile, budget: int) -> float | None:
    try:
        return Solver(problem_of(profile), "auto").solve(budget).replay.time_us
    except InfeasibleError:
        return None


@pytest.mark.parametrize("stages", [4, 8, 12])
@pytest.mark.parametrize("kept", [1, 2, 3, 6])
def test_one_tape_at_a_time_is_revolve(stages: int, kept: int) -> None:
    """Griewank and Walther's closed form of 2000: forward runs with `kept` checkpoints.

    Beside them there are, while a stage's backward runs: its tape with what it makes, what it
    reads, and two gradients.
    """
    ones = (1.0,) * stages
    sizes, none = (1,) * (stages + 1), (0,) * stages
    whole = (1 + TAPE,) * (stages + 1)
    profile = ChainProfile(ones, (*ones, 0.0), sizes, whole, none, (*none, 0))
    repeats = next(r for r in range(stages) if comb(kept + r, kept) >= stages)
    forward = repeats * stages - comb(kept + repeats, repeats - 1)
    budget = TAPE + 4 + kept
    assert _auto(profile, budget) == least_time(profile, budget, budget) == forward + 2 * stages


@given(_profiles(3), st.integers(30, 100))
@settings(max_examples=40, deadline=None)
def test_short_chains_take_the_least_time(profile: ChainProfile, share: int) -> None:
    problem = problem_of(profile)
    budget = Solver(problem, "none").plain.peak_bytes * share // 100
    assert _auto(profile, budget) == least_of_all(problem, budget)


@given(_profiles(7), st.integers(30, 100))
@settings(max_examples=40, deadline=None)
def test_never_slower_than_rotor(profile: ChainProfile, share: int) -> None:
    budget = Solver(problem_of(profile), "none").plain.peak_bytes * share // 100
    theirs = least_time(profile, budget, budget, tapes=True)
    assert least_time(profile, budget, budget) <= theirs
    ours = _auto(profile, budget)
    assert theirs == float("inf") or (ours is not None and ours <= theirs)


def test_the_instance_beside_is_solved() -> None:
    problem = read_instance(INSTANCE)
    assert isinstance(problem, Problem)
    profile = parse_chain(INSTANCE.read_text(encoding="utf-8"))
    budget = Solver(problem, "none").plain.peak_bytes * 80 // 100
    ours, theirs = _auto(profile, budget), least_time(profile, budget, 500)
    assert ours is not None and ours <= theirs < float("inf")
