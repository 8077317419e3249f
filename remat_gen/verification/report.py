"""What verification found; the command line prints the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from remat_gen.verification.compare import BUILT, NOISE_FACTOR, Comparison, Match
from remat_gen.verification.outcome import ATTRIBUTES, BEHIND, EVALUATION
from remat_gen.verification.paired_times import TimeRatio
from remat_gen.verification.peak import PeakMeasurement

_PREDICTION_SHARE = 0.01
_PREDICTION_BYTES = 64 * 1024
_PREDICTED = "predicted peak"
_NAMED_AT_MOST = 5
_ALLOWED = f"up to {NOISE_FACTOR:g} times as much is allowed"
_DETERMINISTIC = "varies in last bits; both ran torch's deterministic algorithms"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a report; `ok` is None where nothing could be, or need be, judged."""

    what: str
    ok: bool | None
    result: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Both models, side by side. Peaks are activation peaks of the second step, `.grad` allocated.

    `failure` says why the planned model could not be run, `original_failure` why the original
    could not, or how it is not `repeatable`: then nothing was compared. That is an error unless the
    original does not fit on the device, which may be why it was planned. `deterministic` says that
    both ran deterministic kernels, `moving` how many results of the original are not the same to
    the bit in three repeats. Where the eager rest of a step `varies`, it may need less than was
    predicted. `smaller` are about smaller steps, by name: of a smaller batch, the
    longest of each rung. `predicted_here_bytes` is what was predicted for the kernels of this
    machine, where the plan's costs are of others.
    """

    comparisons: tuple[Comparison, ...] = ()
    original_peak: PeakMeasurement | None = None
    planned_peak: PeakMeasurement | None = None
    predicted_peak_bytes: int | None = None
    predicted_here_bytes: int | None = None
    budget_bytes: int | None = None
    modelled: bool = False
    varies: bool = False
    time: TimeRatio | None = None
    original_failure: str = ""
    original_fits: bool = True
    repeatable: bool = True
    deterministic: bool = False
    moving: int = 0
    failure: str = ""
    smaller: tuple[tuple[str, Report], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything agrees and the measured peak keeps its promises."""
        return all(row.ok is not False for row in self.rows())

    @property
    def as_predicted(self) -> bool:
        """Whether the measured peak, if there is one, is the predicted one."""
        return all(row.ok is not False for row in self.rows() if row.what == _PREDICTED)

    @property
    def bitwise(self) -> bool:
        """Whether everything that was compared agrees to the bit."""
        return bool(self.comparisons) and all(
            c.match is Match.BITWISE
            for report in (self, *(smaller for _, smaller in self.smaller))
            for c in report.comparisons
        )

    def rows(self) -> tuple[Row, ...]:
        """Return the report, one line per kind of result."""
        return tuple(self._rows())

    def _rows(self) -> Iterator[Row]:
        if self.failure:
            yield Row("planned model", False, "failed", self.failure)
        if self.original_failure:
            ok = False if self.original_fits else None
            result = "not compared" if self.repeatable else "not repeatable"
            yield Row("original model", ok, result, self.original_failure)
        if self.deterministic:
            yield Row("original model", None, "deterministic", _DETERMINISTIC)
        if self.moving:
            moving = f"{self.moving} of its results differ from run to run; {_ALLOWED}"
            yield Row("original model", None, "not bitwise itself", moving)
        ordered = sorted(self.comparisons, key=lambda c: _KINDS.index(c.kind))
        for kind, group in groupby(ordered, key=lambda c: c.kind):
            yield _summary(kind, list(group))
        if self.planned_peak:
            yield from self._peaks(self.planned_peak)
        for name, report in self.smaller:
            yield _summary_of_all(name, report)
        if time := self.time:
            interval = f"{time.low:.3f} to {time.high:.3f} at 95 %, {time.pairs} pairs"
            yield Row("step time", None, f"{time.median:.3f} × the original", interval)

    def _peaks(self, peak: PeakMeasurement) -> Iterator[Row]:
        original, measured = self.original_peak, peak.peak_bytes
        beside = f"original {original.peak_bytes:,} bytes" if original else ""
        if peak.allocated_peak_bytes is not None:
            beside += f"; allocated {peak.allocated_peak_bytes:,} bytes"
            beside += f"; {peak.reserved_bytes:,} bytes reserved in all"
        yield Row("activation peak", None, f"{measured:,} bytes", beside.lstrip("; "))
        if self.budget_bytes is not None:
            fits = measured <= self.budget_bytes
            result = "within" if fits else "exceeded"
            yield Row("budget", fits, result, f"budget {self.budget_bytes:,} bytes")
        if self.predicted_peak_bytes is not None:
            yield _prediction(self.predicted_peak_bytes, peak, self)


# The kinds of results that are compared, in the order in which they are shown.
_KINDS = (
    *("outputs", "gradients", "input gradients", "buffers", ATTRIBUTES, "inputs", "random state"),
    EVALUATION,
    BEHIND,
    BUILT,
)


def _summary(kind: str, comparisons: list[Comparison]) -> Row:
    different = [c for c in comparisons if c.match is Match.DIFFERENT]
    rounded = [c for c in comparisons if c.match is Match.TOLERANCE]
    worst = Match.DIFFERENT if different else Match.TOLERANCE if rounded else Match.BITWISE
    bitwise = len(comparisons) - len(different) - len(rounded)
    count = f"{bitwise} of {len(comparisons)} bitwise"
    named = "; ".join(_explain(c) for c in (different or rounded)[:_NAMED_AT_MOST])
    more = len(different or rounded) - _NAMED_AT_MOST
    detail = "; ".join(part for part in (count, named, f"and {more} more" * (more > 0)) if part)
    return Row(kind, not different, worst.value, detail)


def _summary_of_all(name: str, report: Report) -> Row:
    """Return the line of a report as a whole."""
    if report.original_failure and report.repeatable:
        return Row(name, None, "not compared", f"the original: {report.original_failure}")
    wrong = [row for row in report.rows() if row.ok is False]
    if wrong:
        told = "; ".join(f"{row.what}: {row.result}: {row.detail}" for row in wrong)
        return Row(name, False, wrong[0].result, told)
    result = Match.BITWISE if report.bitwise else Match.TOLERANCE
    told = f"{len(report.comparisons)} compared"
    told += f"; peak {report.planned_peak.peak_bytes:,} bytes" if report.planned_peak else ""
    told += "; by torch's deterministic algorithms" * report.deterministic
    return Row(name, True, result.value, told)


def _explain(comparison: Comparison) -> str:
    if comparison.detail:
        return f"{comparison.name}: {comparison.detail}"
    if comparison.difference is None or comparison.tolerance is None:
        return comparison.name
    off, allowed = comparison.difference, comparison.tolerance
    return f"{comparison.name}: off by {off:.3g}, tolerance {allowed:.3g}"


def as_predicted(predicted: int, measured: int) -> bool:
    """Tell whether a prediction is right, as far as predictions are promised to be."""
    return _is_close(abs(measured - predicted), measured)


def _is_close(off: int, measured: int) -> bool:
    return off <= max(_PREDICTION_SHARE * measured, _PREDICTION_BYTES)


def _prediction(predicted: int, peak: PeakMeasurement, report: Report) -> Row:
    """Judge a prediction, whose storages are rounded as an allocator rounds them.

    A GPU's allocator also counts what it leaves unused at the end of a large block: the prediction
    is between the bytes that were asked for and those.
    """
    most = max(peak.peak_bytes, peak.allocated_peak_bytes or 0)
    off = max(peak.peak_bytes - predicted, predicted - most, 0)
    ok = _is_close(off, peak.peak_bytes)
    if report.varies and peak.peak_bytes < predicted and not ok:  # layers left out, other routes
        detail = f"at most {predicted:,} bytes were predicted, by a step that runs all units"
        return Row(_PREDICTED, None, "less", detail)
    if report.modelled and not ok:  # the workspace of operations was not measured
        detail = f"modelled as {predicted:,} bytes, off by {off:,}"
        return Row(_PREDICTED, None, "modelled", detail)
    detail, here = f"predicted {predicted:,} bytes, off by {off:,}", report.predicted_here_bytes
    if here is not None:
        off, ok = abs(here - peak.peak_bytes), as_predicted(here, peak.peak_bytes)
        detail = f"predicted {here:,} bytes for this machine's kernels, off by {off:,}"
        detail += f"; {predicted:,} for those where it was planned"
    return Row(_PREDICTED, ok, "as predicted" if ok else "not as predicted", detail)
