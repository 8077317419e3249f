"""`diff`: what two plans do otherwise, in words; files and git revisions."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runs import Remat

from remat_gen.ir.plan import Block, Plan, PlannedSegment, plan_text, read_plan
from remat_gen.review.difference import difference
from remat_gen.review.difference_text import as_markdown, as_text


@pytest.fixture(scope="module")
def plan(planned: Path) -> Plan:
    return read_plan(planned.with_suffix(".plan.json"))


def blocks(*names: str, retained: dict[str, int], again: tuple[str, ...] = ()) -> tuple[Block, ...]:
    return tuple(
        Block(
            name,
            2,
            {f"{name}.{value}": n for value, n in retained.items()},
            tuple(f"{name}.{operation}" for operation in again),
        )
        for name in names
    )


def test_the_same_plan(planned: Path, remat: Remat) -> None:
    ended = remat("diff", planned, planned.with_suffix(".plan.json"))
    assert ended.code == 0
    assert ended.out.startswith("the schedule is the same\n")


def test_what_is_retained_and_run_again(plan: Plan) -> None:
    """Blocks with the same difference are told together; names are those inside of the block."""
    old = replace(plan, blocks=blocks("h.0", "h.1", "h.2", retained={"x": 8, "up": 2**20}))
    new_blocks = blocks("h.0", "h.1", retained={"x": 8, "mixed": 4}, again=("up",))
    new = replace(plan, blocks=new_blocks + old.blocks[2:])
    (found,) = difference(old, new).blocks
    assert found.blocks == ("h.0", "h.1")
    assert (found.retained, found.dropped) == ({"mixed": 4}, {"up": 2**20})
    assert (found.rerun, found.spared) == (("up",), ())
    (back,) = difference(new, old).blocks
    assert (back.retained, back.dropped) == (found.dropped, found.retained)
    assert (back.rerun, back.spared) == ((), ("up",))


def steps(plan: Plan, *lines: str) -> Plan:
    return replace(plan, blocks=(), schedule=(PlannedSegment(0, False, lines),))


def test_what_is_freed_at_another_operation(plan: Plan) -> None:
    old = steps(plan, "run a", "free x", "run b", "run c", "free y", "run gone")
    new = steps(plan, "run a", "run b", "free x y", "run c", "run added")
    found = difference(old, new)
    assert (found.earlier, found.later) == (("y",), ("x",))
    assert (found.added, found.gone) == (("added",), ("gone",))
    assert "operations added       added\n" in as_text(found)


def test_steps_that_nobody_wrote_are_no_operations(plan: Plan) -> None:
    odd = steps(plan, "run a", "", "hold x", "run", "free x")
    assert difference(steps(plan, "run a", "free x"), odd).empty


def test_another_budget_of_a_real_model(existing: Path, remat: Remat) -> None:
    tighter = existing.with_name("tight_remat.py")
    shutil.copy(existing.with_suffix(".plan.json"), tighter.with_suffix(".plan.json"))  # its costs
    assert remat("small.py", "--budget", "55%", "-o", tighter).code == 0
    ended = remat("diff", existing, tighter, "--format", "json")
    assert ended.code == 1
    found = json.loads(ended.out)
    assert found["after"]["peak_bytes"] < found["before"]["peak_bytes"]
    assert found["after"]["time_ratio"] >= found["before"]["time_ratio"]
    assert any(block["dropped"] or block["rerun"] for block in found["blocks"])


def test_markdown_is_a_table_whatever_the_names(plan: Plan) -> None:
    old = replace(plan, blocks=blocks("h|0`", retained={}))
    new = replace(plan, blocks=blocks("h|0`", retained={"a|b": 4, "*c*": 2}, again=("_d_",)))
    lines = as_markdown(difference(old, new)).splitlines()
    rows = lines[lines.index("| block | change | |") :]
    assert [row.count("|") for row in rows if row] == [4, 4, 4, 4]
    assert "`a¦b` (4 B), `*c*` (2 B): 6 B" in "\n".join(rows)


@pytest.fixture
def committed(existing: Path) -> Path:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, *arguments], check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    return existing


def test_a_git_revision(committed: Path, plan: Plan, remat: Remat) -> None:
    changed = replace(plan, predicted=replace(plan.predicted, peak_bytes=2**30), blocks=())
    committed.with_suffix(".plan.json").write_text(plan_text(changed))
    ended = remat("diff", "HEAD:small_remat.py", "small_remat.py")
    assert ended.code == 1
    assert "→ 1 GiB" in ended.out
    assert remat("diff", "HEAD:./small_remat.py", "HEAD:small_remat.plan.json").code == 0


NOT_THERE = {
    "nowhere:small_remat.py": "nowhere: no such revision",
    "HEAD:other.py": "git has no such plan",
    "HEAD:small.py": "git has no such plan",
}


@pytest.mark.parametrize(("name", "said"), NOT_THERE.items())
def test_an_unknown_revision(committed: Path, remat: Remat, name: str, said: str) -> None:
    ended = remat("diff", name, "small_remat.py")
    assert ended.code == 2
    assert said in ended.err


def test_no_such_file(folder: Path, remat: Remat) -> None:
    ended = remat("diff", "a_remat.py", "b_remat.py")
    assert ended.code == 2
    assert ended.err.endswith("error: a_remat.py: no such file\n")
    (folder / "a_remat.py").write_text("")
    ended = remat("diff", "a_remat.py", "b_remat.py")
    assert "a_remat.plan.json: no such plan" in ended.err
