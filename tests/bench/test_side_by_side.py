"""Contestants do what their names say; results are kept, shown and drawn."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from bench.contestants import NO_LAYERS, Module, contestants
from bench.layers import checkpoint_layers, checkpoint_selectively, repeated_layers
from bench.measuring import measure, reason
from bench.models import Case, case_of
from bench.picture import Label, spread, write_picture_of
from bench.published import Figure, figure_of, published_for
from bench.results import Result, Row, keeps_pages, read_results, write_results
from bench.text import page, show, title
from hypothesis import given
from hypothesis import strategies as st
from side_by_side import ratios
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

MODEL = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(16, 64), nn.BatchNorm1d(64), nn.Linear(64, 16)

    def forward(self, x):
        return x + self.down(torch.tanh(self.norm(self.up(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def build_model():
    return Model()


def example_inputs():
    return (torch.randn(256, 16),)
"""
EAGER = Row("eager", "eager", "", peak_bytes=100 << 20, ratio=1.0, low=1.0, high=1.0, step_us=9e4)
OURS = Row("remat-gen, 50%", "remat-gen", "50%", "", 50 << 20, 1.05, 51 << 20, 1.06, 1.04, 1.08)
RESULT = Result("net", 20, "2.13.0", 2, (EAGER, replace(OURS, equal="bitwise")))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "net.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def measured(source: Path) -> dict[str, Row]:
    everybody = contestants(source, [Module("9%", "needs at least 1 MiB")], ())
    result = measure(source, everybody, 2, lambda _: None)
    return {row.name: row for row in result.rows}


def test_checkpoints_hold_less_the_more_there_are(measured: dict[str, Row]) -> None:
    names = ("checkpoint, every layer", "checkpoint, every 2nd", "eager")
    peaks = [measured[name].peak_bytes for name in names]
    assert peaks == sorted(set(peaks))
    assert peaks[0] < measured["checkpoint, selective"].peak_bytes < peaks[2]


def test_buffers_that_a_checkpoint_updates_twice_are_named(measured: dict[str, Row]) -> None:
    assert measured["eager"].equal == "bitwise"
    assert measured["checkpoint, every layer"].equal == "buffers"


def test_all_that_take_part_are_timed(measured: dict[str, Row]) -> None:
    present = [row for row in measured.values() if not row.why_not]
    assert all(row.low <= row.ratio <= row.high and row.step_us > 0 for row in present)
    assert measured["eager"].ratio == 1.0


def test_a_budget_without_a_schedule_says_what_it_needs(measured: dict[str, Row]) -> None:
    assert measured["remat-gen, 9%"].why_not == "needs at least 1 MiB"
    assert measured["remat-gen, 9%"].peak_bytes == 0


def test_without_repeated_layers_checkpoints_say_so(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text(MODEL.replace("range(4)", "range(1)"), encoding="utf-8")
    rows = measure(path, contestants(path, (), ()), 1, lambda _: None).rows
    assert [row.why_not for row in rows] == ["", NO_LAYERS, NO_LAYERS, NO_LAYERS]


class Bare(nn.Module):
    """Two lists: one of layers, of which one has a list inside, and one of lone operations."""

    def __init__(self) -> None:
        super().__init__()
        inner = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
        self.layers = nn.ModuleList([inner, nn.Sequential(nn.Linear(8, 8))])
        self.tail = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.tail(x)


def test_layers_are_outermost_and_have_parts() -> None:
    model = Bare()
    assert repeated_layers(model) == list(model.layers)


def test_selective_checkpoints_run_no_product_again() -> None:
    def flops(model: nn.Module) -> int:
        with FlopCounterMode(display=False) as counter:
            model(torch.randn(4, 8)).sum().backward()
        return counter.get_total_flops()

    selective, whole = Bare(), Bare()
    assert checkpoint_selectively(selective)
    assert checkpoint_layers(whole, 1)
    assert flops(selective) == flops(Bare()) < flops(whole)


def test_reasons_fit_a_row() -> None:
    assert reason("BackendCompilerFailed: No working C++ compiler found in …\nmore") == (
        "torch.compile finds no working C++ compiler"
    )
    assert reason("RuntimeError: short\nmore") == "RuntimeError: short"
    assert len(reason("RuntimeError: " + "long " * 50)) == 60


def test_results_are_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert read_results(path) == {}
    write_results(path, {"net": RESULT})
    assert read_results(path) == {"net": RESULT}


def test_kept_pages_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "1073741824")
    assert not keeps_pages()
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "4294967296")
    assert keeps_pages()
    assert title(replace(RESULT, pages_kept=True)).endswith("20 rounds on 2 threads, pages kept")


def test_cases_change_their_lines_or_fail(tmp_path: Path) -> None:
    written = case_of("gpt_6l").write(tmp_path / "case")
    assert "= 6, 256, 4, 256, 4, 1024" in written.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="has no line"):
        Case("gpt", case_of("gpt").file, (("no such line", ""),)).write(tmp_path)
    with pytest.raises(ValueError, match="neither a file nor one of gpt, "):
        case_of("nothing")


def test_what_was_planned_is_kept_while_the_model_is_the_same(tmp_path: Path) -> None:
    case = case_of("gpt")
    folder = tmp_path / "case"
    kept = case.write(folder).with_name("kept")
    kept.touch()
    case.write(folder)
    assert kept.exists()
    Case("gpt", case.file, (("LAYERS = 4", "LAYERS = 5"),)).write(folder)
    assert not kept.exists()


def test_published_figures_are_shares() -> None:
    entry = {"model": "net", "name": "theirs", "how": "measured", "eager_mb": 80.0, "peak_mb": 20.0}
    assert figure_of(entry) == Figure("net", "theirs", "measured", 0.25, None)
    assert {f.how for m in ("gpt_6l", "resnet18") for f in published_for(m)} == {
        "measured",
        "published",
    }
    assert published_for("gpt") == ()


def test_the_table_fits_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    other = Row("checkpoint, every layer", "checkpoint", "", equal="gradients, buffers")
    refused = Row("torch.compile, 0.5", "torch.compile", "0.5", "no compiler")
    rows = (*RESULT.rows, replace(other, peak_bytes=30 << 20, ratio=1.2, low=1.1, high=1.3))
    show(replace(RESULT, rows=(*rows, refused)), published_for("resnet18"))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    ours = next(line for line in lines if line.startswith("remat-gen"))
    assert ours.split() == "remat-gen, 50% 51.0 % 50.0 % 1.060 1.040–1.080 1.050 bitwise".split()
    assert "not here: torch.compile, 0.5: no compiler" in lines


def test_the_page_has_all_models() -> None:
    text = page({"net": RESULT, "other": replace(RESULT, model="other")})
    assert text.count("| remat-gen, 50% | 51.0 % | 50.0 % | 1.060 |") == 2
    assert "side_by_side_other.svg" in text


def test_the_picture_needs_nothing_besides(tmp_path: Path) -> None:
    path = tmp_path / "net.svg"
    write_picture_of(RESULT, published_for("resnet18"), path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<?xml") and "<image" not in text and "font-family" not in text
    once = path.read_bytes()
    write_picture_of(RESULT, published_for("resnet18"), path)
    assert path.read_bytes() == once


def test_shares_are_read_or_refused() -> None:
    assert ratios("1,0.5,") == [1.0, 0.5]
    assert ratios("") == []
    for wrong in ("abc", "1.5", "-0.1"):
        with pytest.raises(argparse.ArgumentTypeError, match=wrong):
            ratios(wrong)


labels = st.builds(
    Label, st.floats(0, 100), st.floats(0, 2), st.text("ab", min_size=1, max_size=9), st.just("k")
)


@given(st.lists(labels, max_size=8))
def test_no_label_covers_another(found: list[Label]) -> None:
    placed = spread(found, 1.0, 0.1)

    assert sorted((a.x, a.text) for a in placed) == sorted((a.x, a.text) for a in found)
    for i, one in enumerate(placed):
        for other in placed[:i]:
            left, right = sorted((one, other), key=lambda label: label.x)
            # sums of lines are rounded: a billionth of one may be missing
            apart = abs(one.y - other.y) >= 0.1 - 1e-9
            assert apart or right.x > left.x + len(left.text) + 2


def test_labels_that_are_alone_stay() -> None:
    found = [Label(0, 1, "a", "k"), Label(0, 2, "b", "k"), Label(50, 1, "c", "k")]
    assert spread(found, 1.0, 0.5) == [found[0], found[2], found[1]]
