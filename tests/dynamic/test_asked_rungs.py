"""What may be asked of rungs, what is refused, and what of it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from emitting_parts import equal_times
from varying_models import GPT, OPEN_ENDED, RESNET

import remat_gen
from remat_gen.ask.rung_texts import make_rungs, refuse_unknown_lengths
from remat_gen.ir.errors import InfeasibleBudgetError, UsageError
from remat_gen.ir.rung import Rung
from remat_gen.ir.size import Length
from remat_gen.plan.pipeline import Generated
from remat_gen.problem.rung_limits import limits_of
from remat_gen.show.summary import summary_json, summary_lines

LENGTH = Length("length", 2, 128, (("ids", 1),))


def asked(folder: Path, source: str = GPT, **options: Any) -> Generated:
    path = folder / "net.py"
    path.write_text(source, encoding="utf-8")
    output = folder / "net_remat.py"
    return remat_gen.generate(path, **{"budget": "60%", "output": output} | options)


def test_rungs_are_read_as_they_are_written() -> None:
    found = make_rungs(" length<=384,batch <= 4 and length<=768 ")
    assert found == (Rung({"length": 384}), Rung({"batch": 4, "length": 768}))
    assert list(map(str, found)) == ["length <= 384", "batch <= 4 and length <= 768"]
    assert make_rungs(None) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "--rungs '': write a length and its limit"),
        ("length<384", "--rungs 'length<384': write a length and its limit"),
        ("length<=64,", "--rungs '': write a length and its limit"),
        ("length<=64 and length<=32", "write a length and its limit"),
        ("length<=64, length<=64", "no step comes to length <= 64, since length <= 64 is asked"),
        ("length<=96, length<=64", "no step comes to length <= 64, since length <= 96 is asked"),
        ("a<=9, batch<=2 and a<=8", "no step comes to batch <= 2 and a <= 8, since a <= 9"),
        ("a<=1, a<=2, a<=3, a<=4, a<=5", "--rungs has 5 conditions; at most 4"),
    ],
)
def test_malformed_rungs_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make_rungs(text)


@pytest.mark.parametrize(
    ("text", "lengths", "words"),
    [
        ("depth<=4", (LENGTH,), "depth does not vary, but 2 <= length <= 128; --dynamic x:1"),
        ("length<=4", (), r"length does not vary, but nothing \(net.py:3: pinned\); --dynamic"),
        ("length<=1", (LENGTH,), "the limit of a rung is at least 2 and below 128"),
        ("length<=128", (LENGTH,), "the limit of a rung is at least 2 and below 128"),
        ("length<=200", (LENGTH,), "the limit of a rung is at least 2 and below 128"),
    ],
)
def test_rungs_of_no_step_are_refused(text: str, lengths: tuple[Length, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        refuse_unknown_lengths(make_rungs(text), lengths, "net.py:3: pinned")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"in_flight": 2}, "--rungs and --in-flight exclude each other"),
        ({"units": ["layers.*"]}, "--rungs and --units exclude each other"),
        ({"compile": True}, "--rungs and --compile exclude each other"),
        ({"offload": True}, "--rungs and --offload exclude each other"),
        ({"static": True}, "--rungs and --static exclude each other"),
        ({"rungs": "length<=4", "dynamic": ("x:0",)}, "length does not vary, but batch <= 6"),
    ],
)
def test_what_does_not_go_with_rungs(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        asked(tmp_path, OPEN_ENDED, **{"rungs": "batch<=3"} | options)
    assert not (tmp_path / "net_remat.py").exists()


def test_a_plan_for_a_target_is_made_again_in_the_same_bytes(tmp_path: Path) -> None:
    # fresh: what is there would be kept, and may be bettered
    options = {"target": "h200", "budget": "70%", "rungs": "batch<=14", "fresh": True}
    texts = []
    for _ in range(2):
        made = asked(tmp_path, RESNET, **options)
        assert made.output and made.plan_file
        texts.append(made.output.read_bytes() + made.plan_file.read_bytes())
    assert texts[0] == texts[1]
    assert not remat_gen.check(made.output).stale
    assert "--rungs 'batch<=14'" in made.plan.asked.command


def test_a_rung_that_was_changed_is_told(tmp_path: Path) -> None:
    made = asked(tmp_path, RESNET, target="h200", budget="70%", rungs="batch<=14")
    assert made.output and made.plan_file
    text = made.plan_file.read_text(encoding="utf-8")
    assert '"batch": 14' in text
    made.plan_file.write_text(text.replace('"batch": 14', '"batch": 13'), encoding="utf-8")
    checked = remat_gen.check(made.output)
    assert checked.stale and "batch <= 13" in checked.diff


def test_a_rung_that_does_not_fit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it records: the schedule for longer steps fits without that."""
    monkeypatch.setattr("remat_gen.problem.rung_problems.recorded_bytes", lambda *_: 1 << 30)
    options = {"target": "h200", "budget": "70%"}
    with pytest.raises(InfeasibleBudgetError, match=r"^--rungs batch <= 14: no schedule"):
        asked(tmp_path, RESNET, **options, rungs="batch<=14")
    assert asked(tmp_path, RESNET, **options, rungs="auto").plan.rungs == ()


def test_the_rungs_of_an_existing_plan_are_kept(tmp_path: Path) -> None:
    with equal_times():
        options = {"device": "cpu", "budget": "70%", "rungs": "batch<=9, batch<=14"}
        first = asked(tmp_path, RESNET, **options | {"rungs": "batch<=9"})
        more = asked(tmp_path, RESNET, **options)
        again = asked(tmp_path, RESNET, **options)
    assert more.costs_reused
    assert more.plan.rungs[0].costs == first.plan.rungs[0].costs
    assert more.plan.rungs[0].schedule == first.plan.rungs[0].schedule
    assert again.text == more.text


def test_two_limits_lose_least() -> None:
    """Overhead in proportion from 0: the limits are 12/23 and 18/23 of the longest."""
    lower, upper = limits_of([(0, 0.0), (3200, 1.0)], 1)
    assert abs(lower / 3200 - 12 / 23) <= 1 / 32 and abs(upper / 3200 - 18 / 23) <= 1 / 32
    step = [(64, 0.0), (640, 0.0), (641, 0.1), (1024, 0.1)]
    assert limits_of(step, 2) == (634,)  # of a grid of 30


def test_rungs_are_chosen(tmp_path: Path) -> None:
    options = {"target": "h200", "budget": "70%", "rungs": "auto", "fresh": True}
    made, again = asked(tmp_path, RESNET, **options), asked(tmp_path, RESNET, **options)
    assert made.text == again.text and "--rungs auto" in made.plan.asked.command
    assert 1 <= len(made.plan.rungs) <= 2
    assert made.output and not remat_gen.check(made.output).stale
    least, whole = made.plan.rungs[0].predicted, made.plan.predicted
    assert least.time_us / least.eager_time_us < whole.time_us / whole.eager_time_us - 0.003
    assert asked(tmp_path, RESNET, **options | {"budget": "100%"}).plan.rungs == ()


def test_no_rungs_are_chosen_where_nothing_varies(tmp_path: Path) -> None:
    fixed = OPEN_ENDED.replace("self.lin(x)", "self.lin(x.view(6, 8))")
    with pytest.raises(UsageError, match=r"--rungs auto: no length varies \(.*net.py:1"):
        asked(tmp_path, fixed, target="h200", rungs="auto")


def test_the_summary_has_a_line_for_each(tmp_path: Path) -> None:
    made = asked(tmp_path, OPEN_ENDED, target="h200", budget="80%", rungs="batch<=2, batch<=4")
    lines = summary_lines(made)
    at = next(i for i, line in enumerate(lines) if line.startswith("rungs       batch <= 2: "))
    assert lines[at + 1].startswith("            batch <= 4: ")
    assert all(" planned, " in line and "× " in line for line in lines[at : at + 2])
    assert [rung["limits"] for rung in summary_json(made)["rungs"]] == [{"batch": 2}, {"batch": 4}]
