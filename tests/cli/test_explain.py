"""`explain`: every name in a generated module, the other choice replayed, text and JSON."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runs import Remat
from rich.console import Console

from remat_gen.explain.explain_names import ValueNames, names_in_module
from remat_gen.explain.explain_other import retained_instead, run_again_instead
from remat_gen.explain.explain_text import details
from remat_gen.explain.explanation import Explained, Explanation, Fate, explain_file
from remat_gen.review.retrace import Retraced, retrace_file
from remat_gen.solver.law.liveness import to_schedule
from remat_gen.solver.law.problem import Held, Operation, Problem, Value
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import replay


@pytest.fixture(scope="module")
def gpt(gpt_remat: Path) -> Retraced:
    return retrace_file(gpt_remat)


@pytest.fixture(scope="module")
def names(gpt: Retraced) -> ValueNames:
    return names_in_module(gpt)


@pytest.fixture(scope="module")
def everything(gpt_remat: Path) -> Explanation:
    return explain_file(gpt_remat, "*")


def test_every_name_of_the_module_is_known(gpt_remat: Path, names: ValueNames) -> None:
    _, _, text = gpt_remat.read_text().partition("what they keep -")
    text = re.sub(r"# \w+\.py:.*", "", text.partition("# -- kernels and views")[0])
    kept = set(re.findall(r"\b((?:self|g|before|after)(?:_\d+)?\.(?!batch|at\b)\w+)\b", text))
    call = r".*(?:\n {12}.*)*(?:\n {8}\))?"  # of one line or of several
    again = re.findall(rf"^ {{8}}(\w+(?:, \w+)*) = {call}  # re-run", text, re.MULTILINE)
    local = re.findall(r"^ {8}(\w+) = (?:torch|aten|F)\.", text, re.MULTILINE)
    shown = kept | {name for line in again for name in line.split(", ")} | set(local) - {"token"}
    assert len(again) == text.count("# re-run") and len(shown) > 60
    assert all(names.find(name) for name in sorted(shown))


def test_a_name_stands_for_what_the_module_calls_so(names: ValueNames) -> None:
    assert names.find("up") == [f"h.{i}.mlp.up" for i in range(4)]
    assert names.find("h.1.mlp.up") == names.find("h[1].mlp.up") == ["h.1.mlp.up"]
    assert names.find("h.1.up") == ["h.1.mlp.up"]
    assert names.find("mlp.up") == names.find("up")
    assert names.find("h.[12].mlp.up") == ["h.1.mlp.up", "h.2.mlp.up"]
    assert names.find("qkv_weight") == [f"h.{i}.attn.qkv_weight" for i in range(4)]


def test_all_fates_are_the_plans(gpt: Retraced, everything: Explanation) -> None:
    blocks = gpt.existing.plan.blocks
    retained = {name for block in blocks for name in block.retained}
    again = {name for block in blocks for name in block.rematerialised}
    for value in everything.values:
        stays = value.fate in (Fate.RETAINED, Fate.OUTPUT)
        assert stays == (value.name in retained), value.name
        if value.fate is Fate.RERUN:
            assert value.made_by and value.made_by.name in again
    assert {value.fate for value in everything.values} == set(Fate) - {Fate.OFFLOADED}


def test_the_other_choice_adds_up(gpt: Retraced, everything: Explanation) -> None:
    """Time is that of the plan, with what runs more and without what runs less."""
    operations, now = gpt.problem.operations, gpt.replay
    told = [value for value in everything.values if value.other]
    assert {value.fate for value in told} == {Fate.RETAINED, Fate.RERUN}
    for value in told:
        assert value.other and value.made_by
        alone = value.other.alone
        more = sum(operations[p].time_us for p in alone.more)
        less = sum(operations[p].time_us for p in alone.less)
        # sums of the same times in another order: equal but for the rounding of floats
        assert alone.time_us == pytest.approx(now.time_us + more - less, rel=1e-12)
        changed = alone.more if value.fate is Fate.RETAINED else alone.less
        assert value.made_by.name in {operations[p].name for p in changed}


@pytest.mark.parametrize("fate", [Fate.RETAINED, Fate.RERUN])
def test_a_repaired_schedule_keeps_to_the_budget(
    gpt_remat: Path, everything: Explanation, fate: Fate
) -> None:
    large = max(
        (v for v in everything.values if v.fate is fate and v.other), key=lambda v: v.nbytes
    )
    found = explain_file(gpt_remat, large.name)
    (value,) = found.values
    assert value.other and value.other.settled
    assert value.other.settled.peak_bytes <= found.budget_bytes
    assert value.other.settled.time_us > found.retraced.replay.time_us


def problem(first_is_rerunnable: bool = True) -> Problem:
    """Return f0 → f1 → f2 and back: bytes 4, 2, 1; times 10, 20, 30; gradients of one byte."""
    values = [Value("a", 4), Value("b", 2), Value("c", 1, Held.STEP)]
    values += [Value(f"d{i}", 1) for i in range(3)]
    forward = [
        Operation("f0", 10, 0, (), (0,), False, first_is_rerunnable),
        Operation("f1", 20, 0, (0,), (1,), False),
        Operation("f2", 30, 0, (1,), (2,), False),
    ]
    backward = [
        Operation("b2", 1, 0, (1,), (3,), True),
        Operation("b1", 1, 0, (0, 3), (4,), True),
        Operation("b0", 1, 0, (4,), (5,), True),
    ]
    return Problem(tuple(forward + backward), tuple(values))


PLAIN = Program(((0, 1, 2), (3, 4, 5)))
A_AGAIN = Program(((0, 1, 2), (3, 0, 4, 5)))


def test_by_hand_run_again() -> None:
    """In b2 there are a, b, c and d2; without a, the most is in b1: a, c, d2 and d1."""
    given = problem()
    plain = to_schedule(given, PLAIN)
    assert replay(given, plain).peak_bytes == 8
    a, b = (run_again_instead(given, plain, v, 8) for v in (0, 1))
    assert a and (a.alone.peak_bytes, a.alone.time_us, a.alone.more) == (7, 73, (0,))
    assert a.fits and a.settled is None
    assert b and (b.alone.peak_bytes, b.alone.time_us, b.alone.more) == (8, 83, (1,))
    fixed = problem(first_is_rerunnable=False)
    assert run_again_instead(fixed, plain, 0, 8) is None


def test_by_hand_what_is_missing_runs_again_too() -> None:
    """Where a is not there before b2, b needs it first."""
    given = problem()
    b = run_again_instead(given, to_schedule(given, A_AGAIN), 1, 7)
    assert b and (b.alone.peak_bytes, b.alone.time_us, b.alone.more) == (7, 103, (0, 1))


def test_by_hand_retained() -> None:
    given = problem()
    again = to_schedule(given, A_AGAIN)
    a = retained_instead(given, again, 0, 8)
    assert (a.alone.peak_bytes, a.alone.time_us, a.alone.less) == (8, 63, (0,))
    assert a.fits and a.settled is None
    assert not retained_instead(given, again, 0, 7).fits
    assert retained_instead(given, again, 0, None) == replace(a, fits=False)


def test_the_text(existing: Path, remat: Remat) -> None:
    found = explain_file(existing, "*")
    wanted = next(v for v in found.values if v.fate is Fate.RERUN)
    ended = remat("explain", existing, wanted.name, "-q")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[0].startswith(f"{wanted.name}, ")
    assert re.search(r"decision +run again in backward", ended.out)
    assert re.search(r"your line +small\.py:\d+  ", ended.out)
    assert re.search(r"otherwise +retained instead[^:]*:\s+peak .* → .*, time × .* → × ", ended.out)
    assert re.search(r"so +\S", ended.out)
    assert all(len(line) <= 80 for line in ended.out.splitlines())


def test_several_values_are_a_table(existing: Path, remat: Remat) -> None:
    ended = remat("explain", existing, "layers.*.up", "-q")
    rows = [line.split() for line in ended.out.splitlines()]
    assert rows[0][:3] == ["value", "size", "decision"]
    assert [row[0] for row in rows[1:3]] == ["layers.0.up", "layers.1.up"]
    assert "more about one: remat-gen explain" in ended.out


def test_json(existing: Path, remat: Remat) -> None:
    everything = json.loads(remat("explain", existing, "*", "--json", "-q").out)
    told = [value for value in everything["values"] if value["otherwise"]]
    assert {value["decision"] for value in told} <= {"retained", "run again"}
    one = json.loads(remat("explain", existing, told[0]["name"], "--json", "-q").out)
    within = one["values"][0]["otherwise"]["within_budget"]
    assert within is None or within["peak_bytes"] <= one["plan"]["budget_bytes"]


def test_an_unknown_name(existing: Path, remat: Remat) -> None:
    ended = remat("explain", existing, "gelo")
    assert ended.code == 2
    assert "gelo: no value of this name; near are layers.*.gelu" in ended.err


def test_outside_of_the_step(everything: Explanation) -> None:
    """Nothing is to be decided about a parameter, an output, a gradient."""

    def one(fate: Fate) -> Explained:
        return next(value for value in everything.values if value.fate is fate)

    for fate in (Fate.OUTSIDE, Fate.OUTPUT, Fate.GRADIENT, Fate.TRANSIENT):
        assert one(fate).other is None
    assert details(everything, one(Fate.OUTSIDE))


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (-1e-12, "both choices take the same time"),  # sums of floats in another order
        (1e-12, "both choices take the same time"),
        (-5e-4, r"the other choice would save [\d.e-]+ ms of each step"),
        (-5e-3, r"the other choice would save [\d.e-]+ ms of each step: try --effort thorough"),
        (5e-3, r"the plan's choice saves [\d.e-]+ ms of each step"),
    ],
)
def test_the_verdict_advises_only_what_pays(
    everything: Explanation, share: float, said: str
) -> None:
    value = next(v for v in everything.values if v.fate is Fate.RETAINED and v.other)
    assert value.other
    now, eager = everything.retraced.replay.time_us, everything.eager_time_us
    outcome = replace(value.other.alone, time_us=now + share * eager)
    other = replace(value.other, alone=outcome, settled=None, fits=True)
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as capture:
        console.print(details(everything, replace(value, other=other)))
    assert re.search(rf"so +{said} *$", capture.get())
