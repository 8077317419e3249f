"""`fit`, and `--batch`: the batch is chosen together with the budget."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cli_runs import Remat
from rich.console import Console

import remat_gen
from remat_gen.ask.generate_options import GenerateOptions
from remat_gen.best_batch.batch_steps import BatchSteps, between
from remat_gen.best_batch.fit_text import fit_table
from remat_gen.best_batch.fitting import Fit, Row, fit_file, looked_at
from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.load.load import load, load_fake
from remat_gen.capture.profile.calibrate import target_text
from remat_gen.capture.profile.targets import find_target
from remat_gen.capture.refuse.left_out import LeftOut
from remat_gen.capture.trace.resized_batch import at_batch, batch_of, resized
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.ir.costs import Cost, Costs
from remat_gen.ir.errors import InfeasibleBudgetError, UsageError
from remat_gen.ir.plan import read_plan
from remat_gen.plan.costing import costs_of
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.solve import Solver
from remat_gen.terminal.progress import Progress

LIMIT = "300kB"


@pytest.mark.parametrize("batch", [1, 3, 4, 9])
def test_samples_are_repeated_in_the_layout_they_have(batch: int) -> None:
    images = torch.randn(4, 2, 3, 5).to(memory_format=torch.channels_last).requires_grad_()
    found = resized(images, batch)
    assert found.shape == (batch, 2, 3, 5) and found.requires_grad and found.is_leaf
    assert found.is_contiguous(memory_format=torch.channels_last)
    for i in range(batch):
        assert torch.equal(found[i], images[i % 4])


def test_an_example_without_a_batch(folder: Path) -> None:
    text = (folder / "small.py").read_text().replace("randint(8, (256,))", "randint(8, (128,))")
    (folder / "other.py").write_text(text)
    with pytest.raises(UsageError, match=r"no batch to change: .* x \[256, 32\], labels \[128\]"):
        batch_of(load_fake(Path("other.py"), None, None, AbsentDevice("cpu")))


def test_without_a_limit_no_share_is_advised(folder: Path, remat: Remat) -> None:
    """A share of eager's peak says nothing where the batch is looked for."""
    ran = remat("fit", "small.py")
    assert ran.code == 2 and "%" not in ran.err
    assert "give --device-memory 24GB, --target h100, or --budget 6GB of activations" in ran.err


def test_a_module_is_planned_for_another_batch(folder: Path, remat: Remat) -> None:
    assert remat("small.py", "--budget", "75%", "--batch", "384", "-q").code == 0
    module = (folder / "small_remat.py").read_text()
    assert "batch <= 384" in module
    assert "remat-gen small.py --budget 75% --batch 384 -o small_remat.py" in module
    assert read_plan(folder / "small_remat.plan.json").asked.batch == 384
    assert remat("check", "small_remat.py").code == 0
    report = remat_gen.verify("small_remat.py")
    assert report.ok


def test_a_batch_of_nothing(folder: Path, remat: Remat) -> None:
    ended = remat("small.py", "--budget", "75%", "--batch", "0")
    assert ended.code == 2 and "--batch 0: give at least 1" in ended.err
    ended = remat("small.py", "--budget", "75%", "--batch", str(10**12))
    assert ended.code == 2 and "small.py: making an example of a batch of 1,000,0" in ended.err


def test_one_trace_says_what_each_batch_needs(folder: Path) -> None:
    """A symbolic trace at the largest batch against a trace at each one."""
    request = GenerateOptions(budget=LIMIT, target="h100").request(Path("small.py"), None)
    steps = BatchSteps(
        request, load_fake(request.model_file, None, None, AbsentDevice("cuda")), Progress().stage
    )
    steps.trace_for(512)
    assert steps.varies
    for batch in (1, 7, 256, 512):
        loaded = at_batch(load_fake(request.model_file, None, None, AbsentDevice("cuda")), batch)
        traced = trace_loaded(loaded, ())
        costs, _ = costs_of(traced, loaded, "h100", None, lambda *_: None)
        alone, here = problem_of(traced.graph, costs), steps.problem(batch)
        assert Solver(here, "none").plain.peak_bytes == Solver(alone, "none").plain.peak_bytes
        assert Solver(here, "none").plain.time_us == Solver(alone, "none").plain.time_us


def test_the_best_batch_of_a_target(folder: Path, remat: Remat) -> None:
    ended = remat("fit", "small.py", "--budget", LIMIT, "--target", "h100", "--json", "-q")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    rows = {row["batch"]: row for row in found["batches"]}
    for row in rows.values():
        assert row["peak_bytes"] is None or row["peak_bytes"] <= row["budget_bytes"] == 300_000
    rates = {n: row["samples_per_s"] for n, row in rows.items() if row["samples_per_s"]}
    assert found["best"] == max(rates, key=lambda n: rates[n])
    eager = found["largest"]["eager"]
    assert eager < found["best"] <= found["largest"]["planned"]
    assert rows[eager]["eager_peak_bytes"] <= 300_000 and rows[eager]["over_eager"] == 1.0
    assert rows[found["best"]]["over_eager"] > 1.05
    after = min(n for n in looked_at(1, 4 * eager) if n > eager)
    steps = BatchSteps(
        GenerateOptions(budget=LIMIT, target="h100").request(Path("small.py"), None),
        load_fake(Path("small.py"), None, None, AbsentDevice("cuda")),
        Progress().stage,
    )
    steps.trace_for(after)
    assert Solver(steps.problem(after), "none").plain.peak_bytes > 300_000


def test_the_best_batch_is_written(folder: Path, remat: Remat) -> None:
    """Measured here: costs between measured batches, then those of the batch itself."""
    ended = remat(
        "fit", "small.py", "--budget", LIMIT, "-o", "small_remat.py", "--picture", "f.png"
    )
    assert ended.code == 0, ended.err
    assert "largest batch: eager" in ended.out and "over eager's" in ended.out
    assert (folder / "f.png").read_bytes()[:4] == b"\x89PNG"
    plan = read_plan(folder / "small_remat.plan.json")
    assert f"*{plan.asked.batch}" in ended.out
    assert plan.predicted.peak_bytes <= 300_000
    assert remat("check", "small_remat.py").code == 0


def test_values_may_go_to_the_host(folder: Path, remat: Remat) -> None:
    """A link so quick that copies hide: nothing but what one operation needs ends the batch."""
    near = replace(find_target("h100"), host_bytes_per_s=1e15, launch_us=1e-3, drawn_per_s=1e12)
    (folder / "near.toml").write_text(target_text("near", near))
    asked = ("fit", "small.py", "--budget", LIMIT, "--target", "near.toml", "--json")
    without = json.loads(remat(*asked, "-q").out)
    ended = remat(*asked, "--offload", "-o", "small_remat.py")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    for row in found["batches"]:
        assert row["peak_bytes"] is None or row["peak_bytes"] <= 300_000
    rates = {row["batch"]: row["samples_per_s"] or 0.0 for row in without["batches"]}
    best = {row["batch"]: row["samples_per_s"] for row in found["batches"]}[found["best"]]
    assert best > max(rates.values())
    assert found["largest"]["planned"] >= without["largest"]["planned"]
    plan = read_plan(folder / "small_remat.plan.json")
    assert plan.asked.batch == found["best"] and plan.offload and plan.predicted.sent_values
    assert remat("check", "small_remat.py").code == 0


def test_what_is_left_of_a_device_depends_on_the_batch(folder: Path) -> None:
    options = GenerateOptions(device_memory="1MB", headroom="0", optimizer="sgd")
    request = options.request(Path("small.py"), None)
    steps = BatchSteps(request, load(request.model_file, device="cpu"), Progress().stage)
    sample = 32 * 4 + 8
    assert steps.limit(256) - steps.limit(257) == sample
    assert steps.limit(1 << 20) == 0


def test_where_the_batch_cannot_vary_multiples_are_traced(folder: Path) -> None:
    text = (folder / "small.py").read_text()
    text = text.replace("(256, 32)", "(8, 32)").replace("(256,)", "(8,)")
    pairs = "        assert x.shape[0] % 8 == 0\n        for layer in"
    (folder / "eights.py").write_text(text.replace("        for layer in", pairs, 1))
    request = GenerateOptions(budget="100kB", target="h100").request(Path("eights.py"), None)
    found = fit_file(request, Progress())
    assert all(row.batch % 8 == 0 for row in found.rows)
    assert found.eager is not None and found.best.batch > found.eager.batch


def test_refusals(folder: Path, remat: Remat) -> None:
    share = remat("fit", "small.py", "--budget", "60%", "--target", "h100")
    assert share.code == 2 and "says nothing where the batch is looked for" in share.err
    with pytest.raises(InfeasibleBudgetError, match="not even a batch of 1 fits 100: 100 B"):
        remat_gen.fit("small.py", budget=100, target="h100")


def test_costs_between_batches() -> None:
    one = Costs("d", {"a": Cost(10.0, 100), "b": Cost(4.0, 0, modelled=True)}, 512)
    two = Costs("d", {"a": Cost(30.0, 301), "b": Cost(4.0, 0)}, 512)
    found = between(12, (8, one), (16, two))
    assert found.operations == {"a": Cost(20.0, 201), "b": Cost(4.0, 0, modelled=True)}
    assert between(16, (8, one), (16, two)).operations["a"] == Cost(30.0, 301)


def test_batches_of_few_digits() -> None:
    found = list(looked_at(1, 70))
    assert found[:16] == list(range(1, 17))
    assert found[16:] == [*range(18, 32, 2), *range(32, 64, 4), 64]


def test_the_table_fits_into_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """In a log, which is no terminal, peaks ended in an ellipsis."""
    wide = Row(1024, 1000 * 2**20, 1000 * 2**20, 1.0, 1000 * 2**20, 999.4)
    out = Row(1152, 1000 * 2**20, 1000 * 2**20, 1.0, None, None)
    without = (LeftOut("torch's backward of nn.GRU", "rnn"),)
    found = Fit("Net", "cpu", "1GB", (wide, out), wide, wide, wide, without)
    Console(width=80).print(fit_table(found))
    printed = capsys.readouterr().out
    assert "…" not in printed and "*1024" in printed and "does not fit" in printed
    assert "eager is without torch's backward of nn.GRU (rnn)" in printed
