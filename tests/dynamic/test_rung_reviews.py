"""`explain`, `plot` and `diff` of a rung: what is planned for its steps, as the plan has it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rung_files import Rungs, rungs_of
from varying_models import GPT

from remat_gen.cli.app import main
from remat_gen.explain.explanation import Fate, explain_file
from remat_gen.ir.errors import UsageError
from remat_gen.ir.plan import Plan, plan_text
from remat_gen.picture.timeline_bands import total_bytes
from remat_gen.review.difference import difference
from remat_gen.review.difference_text import as_json, as_markdown, as_text
from remat_gen.review.retrace import retrace_file, view_file

RUNGS = "length<=5", "length<=8"


@pytest.fixture(scope="module")
def made() -> Rungs:
    return rungs_of(GPT, "60%", ("ids:1", "targets:1"), ", ".join(RUNGS))


@pytest.fixture(scope="module")
def plan(made: Rungs) -> Plan:
    return made.generated.plan


@pytest.mark.parametrize("i", range(len(RUNGS)))
def test_what_is_explained_is_the_rung_s(made: Rungs, plan: Plan, i: int) -> None:
    planned = plan.rungs[i]
    found = explain_file(made.path, "*", RUNGS[i])
    assert found.retraced.replay.peak_bytes == planned.predicted.peak_bytes
    assert found.retraced.replay.time_us == pytest.approx(planned.predicted.time_us)
    sizes = {value.name: value.nbytes for value in found.values}
    kept = {name: n for block in planned.blocks for name, n in block.retained.items()}
    assert {name: sizes[name] for name in kept} == kept
    again = sum(len(block.rematerialised) for block in planned.blocks)
    reruns = {v.made_by.name: v.reruns for v in found.values if v.made_by}
    assert sum(reruns.values()) == again == planned.predicted.reruns


def test_a_shorter_step_retains_what_a_longer_one_runs_again(made: Rungs) -> None:
    def again(rung: str | None) -> set[str]:
        return {v.name for v in explain_file(made.path, "*", rung).values if v.fate is Fate.RERUN}

    assert again(RUNGS[0]) < again(None)


def test_a_picture_is_of_the_longest_step(made: Rungs, plan: Plan) -> None:
    view = view_file(made.path, RUNGS[1])
    assert max(total_bytes(view.bands)) == view.peak_bytes == plan.rungs[1].predicted.peak_bytes
    assert view.eager.peak_bytes < view_file(made.path).eager.peak_bytes
    assert view.title == "net_remat.py, length <= 8"
    assert view.budget_bytes == plan.asked.budget_bytes


def test_a_rung_with_memory_of_its_own_has_that_as_its_budget(plan: Plan) -> None:
    roomy = replace(plan.rungs[0], free_bytes=10**9)
    assert plan.of_rung(roomy).asked.budget_bytes == 10**9
    assert plan.of_rung(plan.rungs[0]).asked.budget_bytes == plan.asked.budget_bytes


@pytest.mark.parametrize("text", ["length<=6", "length", ""])
def test_an_unknown_rung_names_those_that_there_are(made: Rungs, text: str) -> None:
    with pytest.raises(UsageError, match=r"net_remat\.py are: length <= 5, length <= 8$"):
        retrace_file(made.path, text)


@pytest.fixture(scope="module")
def changed(plan: Plan) -> Plan:
    """Return a plan in which the first rung alone is planned otherwise, and the last is gone."""
    first, *_ = plan.rungs
    again = replace(first, blocks=first.blocks[:-1], predicted=plan.predicted)
    return replace(plan, rungs=(again,))


def test_the_same_rungs_are_no_difference(plan: Plan) -> None:
    found = difference(plan, plan)
    assert found.empty and [*found.rungs] == ["length <= 5", "length <= 8"]
    assert as_text(found).count("the schedule is the same") == 3


def test_a_rung_that_changed_is_a_difference(plan: Plan, changed: Plan) -> None:
    found = difference(plan, changed)
    assert found.schedule_is_same and not found.empty
    assert found.gone_rungs == ("length <= 8",) and difference(changed, plan).new_rungs
    assert found.rungs["length <= 5"].blocks
    text = as_text(found)
    assert text.startswith("the schedule is the same\n")
    assert "\nrungs gone             length <= 8\n" in text
    assert "\nrung length <= 5\nbudget" in text and "no longer retained" in text
    marked = as_markdown(found)
    assert "- rungs gone: `length <= 8`" in marked and "**Rung `length <= 5`**" in marked
    assert not as_json(found)["rungs"]["length <= 5"]["same"]


def test_the_commands_take_a_rung(
    made: Rungs, changed: Plan, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, rung = str(made.path), ("--rung", RUNGS[0])
    assert main(["explain", file, "softmax", *rung]) == 0
    assert "in steps with length <= 5" in capsys.readouterr().out
    assert main(["explain", file, "softmax", *rung, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["rung"] == "length <= 5"
    assert main(["explain", file, "softmax", "--rung", "length<=7"]) == 2
    assert "the rungs of" in capsys.readouterr().err
    assert main(["plot", file, *rung]) == 0
    assert "net_remat_to_5.svg" in capsys.readouterr().err
    made.path.with_name("net_remat_to_5.svg").unlink()
    (tmp_path / "net_remat.plan.json").write_text(plan_text(changed), encoding="utf-8")
    assert main(["diff", file, str(tmp_path / "net_remat.plan.json")]) == 1
    assert "rungs gone" in capsys.readouterr().out
