"""Rungs by free memory: where as much is free when a step begins, its schedule may take it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from emitting_parts import equal_times
from rung_files import Rungs, rungs_of
from varying_models import GPT, RESNET

import remat_gen
from remat_gen.ask.rung_texts import make_rungs
from remat_gen.ir.errors import UsageError
from remat_gen.ir.rung import Rung
from remat_gen.verification.compare import Match, compare
from remat_gen.verification.step import told_free

KIB = 1024
RUNGS = "length<=4, free>=180KiB, free>=140KiB and length<=10"
# the function that a step runs, by its length and what is free
RUNS = {
    (4, 0): "run_to_4",
    (4, 999 * KIB): "run_to_4",
    (5, 0): "run_any",
    (12, 180 * KIB - 1): "run_any",
    (12, 180 * KIB): "run_in_180kib",
    (7, 180 * KIB): "run_in_180kib",
    (10, 180 * KIB - 1): "run_to_10_in_140kib",
    (11, 180 * KIB - 1): "run_any",
}


@pytest.fixture(scope="module")
def made() -> Rungs:
    return rungs_of(GPT, "60%", ("ids:1", "targets:1"), RUNGS)


@pytest.mark.parametrize(("length", "free"), RUNS)
def test_every_step_is_eager_s_and_runs_its_program(made: Rungs, length: int, free: int) -> None:
    eager = made.steps(made.original, length=length)
    with told_free(made.planned.model, free):
        assert made.ran(length=length) == made.written(RUNS[length, free])
        planned = made.steps(made.planned, length=length)
        measured = made.peak_bytes(length=length)
    assert measured <= max(made.generated.plan.asked.budget_bytes, free)
    for wanted, got in zip(eager, planned, strict=True):
        found = [compare(*key, wanted[key], got[key]) for key in wanted]
        assert [f for f in found if f.match is not Match.BITWISE] == []


def test_more_memory_is_quicker(made: Rungs) -> None:
    _, most, _ = made.generated.plan.rungs
    whole = made.generated.plan.predicted
    assert whole.peak_bytes < most.predicted.peak_bytes <= 180 * KIB
    assert most.predicted.time_us < whole.time_us


def test_the_file_asks_the_machine(made: Rungs) -> None:
    assert "        if free_bytes() >= 184_320:\n" in made.generated.text
    free_bytes = vars(made.planned.module)["free_bytes"]
    assert KIB < free_bytes() < 1 << 50
    with told_free(made.planned.model, 7):
        assert vars(made.planned.module)["free_bytes"]() == 7
    assert vars(made.planned.module)["free_bytes"] is free_bytes


def test_it_is_checked_and_verified(made: Rungs) -> None:
    assert remat_gen.check(made.path).causes == ()
    report = remat_gen.verify(made.path)
    assert report.ok and report.bitwise, report.rows()
    peaks = {name: found.planned_peak for name, found in report.smaller}
    peak = peaks["rung free >= 180KiB"]
    assert peak and made.generated.plan.asked.budget_bytes < peak.peak_bytes <= 180 * KIB


def test_a_step_whose_lengths_are_fixed_has_them_too(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(RESNET.replace("self.stem(x)", "self.stem(x.view(20, 3, 8, 8))"))
    with equal_times():
        made = remat_gen.generate(path, budget="70%", device="cpu", rungs="free>=400KB")
    assert made.plan.dynamic == () and made.output
    assert "--rungs 'free>=400KB'" in made.plan.asked.command
    report = remat_gen.verify(made.output)
    assert report.ok and [name for name, _ in report.smaller] == ["rung free >= 400KB"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("free>=lots", "--rungs free>= 'lots': not a size"),
        ("free>=1GB and free>=2GB", "write a length and its limit"),
        ("free>=1GB, free>=2GB", "no step comes to free >= 2GB, since free >= 1GB is asked first"),
    ],
)
def test_malformed_ones_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make_rungs(text)
    found = make_rungs("free>=1.5GiB and a<=4")
    assert found == (Rung({"a": 4}, 3 << 29),) and str(*found) == "a <= 4 and free >= 1536MiB"


def test_less_than_the_budget_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(RESNET, encoding="utf-8")
    options: dict[str, Any] = {"budget": "300KiB", "target": "h200", "rungs": "free>=200KiB"}
    with pytest.raises(UsageError, match=r"free >= 200KiB: the budget is 300 KiB already"):
        remat_gen.generate(path, **options)
