"""Measure all contestants with one model: peaks and equality one by one, step times in turn."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from bench.contestants import Contestant, NotApplicableError, fresh
from bench.results import Result, Row, keeps_pages
from remat_gen.capture.load.load import Loaded
from remat_gen.ir.errors import RematError
from remat_gen.verification.compare import Match
from remat_gen.verification.compare_models import verify_models
from remat_gen.verification.paired_times import interleaved_us, ratio_of
from remat_gen.verification.peak import model_peak
from remat_gen.verification.report import Report
from remat_gen.verification.step import training_step

_CPU = torch.device("cpu")
_NO_COMPILER = ("InvalidCxxCompiler", "CppCompileError", "No working C++ compiler")
_REASON = 60  # characters of a reason


@dataclass(frozen=True, slots=True)
class Runner:
    """A contestant that runs: its model, and its row but for the times."""

    model: nn.Module
    row: Row


def measure(
    source: Path, everybody: Sequence[Contestant], rounds: int, tell: Callable[[str], None]
) -> Result:
    """Measure contestants, eager first; who cannot take part has a row that says so."""
    original = fresh(source)
    runners, rows = [], []
    for contestant in everybody:
        tell(f"{source.stem}: {contestant.name}")
        runner = entered(contestant, original)
        rows.append(runner if isinstance(runner, Row) else runner.row)
        if isinstance(runner, Runner):
            runners.append(runner)
    tell(f"{source.stem}: {rounds} rounds of {len(runners)} steps")
    timed = {row.name: row for row in timed_rows(runners, original, rounds)}
    rows = [timed.get(row.name, row) for row in rows]
    version, threads = str(torch.__version__), torch.get_num_threads()
    return Result(source.stem, rounds, version, threads, tuple(rows), keeps_pages())


def entered(contestant: Contestant, original: Loaded) -> Runner | Row:
    """Build a contestant's model, and compare two steps of it with eager's."""
    row = Row(contestant.name, contestant.kind, contestant.setting)
    try:
        model = contestant.build()
    except (NotApplicableError, RematError) as error:
        return replace(row, why_not=str(error))
    if contestant.kind == "eager":
        peak = model_peak(model, original.args, original.kwargs, _CPU)
        return Runner(model, replace(row, peak_bytes=peak.peak_bytes, equal="bitwise"))
    report = verify_models(
        original.model,
        model,
        original.args,
        original.kwargs,
        device=_CPU,
        predicted_peak_bytes=None,
        budget_bytes=None,
    )
    if report.failure or report.original_failure or report.planned_peak is None:
        return replace(row, why_not=reason(report.failure or report.original_failure))
    row = replace(row, peak_bytes=report.planned_peak.peak_bytes, equal=agreement(report))
    if predicted := contestant.predicted:
        ratio = predicted.time_us / predicted.eager_time_us
        row = replace(row, planned_bytes=predicted.peak_bytes, planned_ratio=round(ratio, 4))
    return Runner(model, row)


def agreement(report: Report) -> str:
    """Say how two steps agree with eager's: "bitwise", "rounding", or what differs."""
    differing = [c.kind for c in report.comparisons if c.match is Match.DIFFERENT]
    if differing:
        return ", ".join(dict.fromkeys(differing))
    return "bitwise" if report.bitwise else "rounding"


def reason(failure: str) -> str:
    """Return why a contestant failed, short enough for a table."""
    if any(sign in failure for sign in _NO_COMPILER):
        return "torch.compile finds no working C++ compiler"
    first = next(iter(failure.splitlines()), "")
    return first if len(first) <= _REASON else f"{first[: _REASON - 1]}…"


def timed_rows(runners: Sequence[Runner], original: Loaded, rounds: int) -> list[Row]:
    """Time the steps of all in turn; the first one is eager's."""
    steps = [_step(runner.model, original) for runner in runners]
    times = interleaved_us(steps, _CPU, rounds)
    rows = []
    for runner, mine in zip(runners, times, strict=True):
        found = ratio_of(times[0], mine)
        rows.append(
            replace(
                runner.row,
                ratio=round(found.median, 4),
                low=round(found.low, 4),
                high=round(found.high, 4),
                step_us=round(found.planned_us, 1),
            )
        )
    return rows


def _step(model: nn.Module, original: Loaded) -> Callable[[], object]:
    args, kwargs = copy.deepcopy((original.args, original.kwargs))
    return lambda: training_step(model, args, kwargs)
