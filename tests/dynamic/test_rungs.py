"""Rungs: shorter steps run schedules of their own, in one file, within the same budget."""

from __future__ import annotations

import re

import pytest
from rung_files import Rungs, rungs_of
from varying_models import GPT, RESNET

import remat_gen
from remat_gen.verification.compare import Match, compare

RECORDED = 5056  # the generator's state is counted where backward runs forward's operations, too
# a budget, what varies, the rungs, and the function that each step runs
CASES = {
    "length": (
        GPT,
        "60%",
        ("ids:1", "targets:1"),
        "length<=5, length<=8",
        {
            "run_to_5": ({"length": 2}, {"length": 4}, {"length": 5}),
            "run_to_8": ({"length": 6}, {"length": 8}),
            "run_any": ({"length": 9}, {"length": 12}),
        },
    ),
    "batch": (
        RESNET,
        "70%",
        ("x:0",),
        "batch<=11",
        {
            "run_to_11": ({"batch": 3}, {"batch": 11}),
            "run_any": ({"batch": 12}, {"batch": 20}),
        },
    ),
    "both": (
        GPT,
        "60%",
        ("ids:0", "targets:0", "ids:1", "targets:1"),
        "batch<=3 and length<=9, length<=6",
        {
            "run_to_3_by_9": ({"batch": 3, "length": 9}, {"batch": 2, "length": 5}),
            "run_to_6": ({"batch": 4, "length": 6},),
            "run_any": ({"batch": 3, "length": 10}, {"batch": 6, "length": 12}),
        },
    ),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def made(case: str) -> Rungs:
    source, budget, dynamic, rungs, _ = CASES[case]
    return rungs_of(source, budget, dynamic, rungs)


def test_every_step_is_eager_s_and_runs_its_program(case: str, made: Rungs) -> None:
    for function, steps in CASES[case][4].items():
        assert made.written(function)
        for lengths in steps:
            assert made.ran(**lengths) == made.written(function), lengths
            eager, planned = (made.steps(m, **lengths) for m in (made.original, made.planned))
            for wanted, got in zip(eager, planned, strict=True):
                assert wanted.keys() == got.keys()
                found = [compare(*key, wanted[key], got[key]) for key in wanted]
                assert [f for f in found if f.match is not Match.BITWISE] == [], lengths


def test_the_longest_step_of_a_rung_is_within_the_budget(made: Rungs) -> None:
    plan = made.generated.plan
    assert plan.rungs
    for planned in plan.rungs:
        measured = made.peak_bytes(**planned.limits)
        assert measured <= plan.asked.budget_bytes
        assert 0 <= planned.predicted.peak_bytes - measured <= RECORDED
    assert made.peak_bytes() == plan.predicted.peak_bytes <= plan.asked.budget_bytes


def test_shorter_steps_run_less_again(made: Rungs) -> None:
    plan = made.generated.plan
    least, whole = plan.rungs[0].predicted, plan.predicted
    assert least.reruns < whole.reruns
    ratios = [p.time_us / p.eager_time_us for p in (least, whole)]
    assert ratios[0] < ratios[1]


def test_no_step_that_a_rung_admits_exceeds_the_budget(case: str, made: Rungs) -> None:
    budget = made.generated.plan.asked.budget_bytes
    steps = [lengths for steps in CASES[case][4].values() for lengths in steps]
    assert max(made.peak_bytes(**lengths) for lengths in steps) <= budget


def test_the_choice_is_plain_to_read(made: Rungs) -> None:
    asked = [condition.strip() for condition in made.generated.plan.asked.command.split("'")]
    rungs = asked[1].replace("<=", " <= ").split(", ")
    conditions = re.findall(r"^        if (.* <= \d+):$", made.generated.text, re.MULTILINE)
    assert conditions == rungs
    header, _, _ = made.generated.text.partition('"""')
    assert [row for row in rungs if f"# {row} " not in header] == []


def test_it_is_written_again_and_checked_and_verified(made: Rungs) -> None:
    assert remat_gen.check(made.path).causes == ()
    report = remat_gen.verify(made.path)
    assert report.ok and report.bitwise
    names = [name for name, _ in report.smaller]
    assert names[1:] == [f"rung {planned.rung}" for planned in made.generated.plan.rungs]
    for (_, smaller), planned in zip(report.smaller[1:], made.generated.plan.rungs, strict=True):
        assert smaller.planned_peak is not None
        assert smaller.planned_peak.peak_bytes <= planned.predicted.peak_bytes
