"""Run the original and the planned model, and compare all that their steps leave behind."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import nn

from remat_gen.capture.device.absent import AbsentDevice
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.load.records import in_classes_of
from remat_gen.capture.process.copies import copied_with
from remat_gen.capture.process.generators import kept_generators
from remat_gen.capture.values.holding import first_step_undone
from remat_gen.ir.errors import said
from remat_gen.terminal.progress import Step
from remat_gen.verification.compare import Comparison, Match, compare_step, compare_steps
from remat_gen.verification.noise import GRADIENTS, larger, noise_of_errors
from remat_gen.verification.outcome import (
    EVALUATION,
    Outcome,
    State,
    evaluate,
    in_double,
    run_steps,
)
from remat_gen.verification.paired_times import TimeRatio, time_ratio
from remat_gen.verification.peak import PeakMeasurement, model_peak
from remat_gen.verification.planned_kernels import planned_kernels
from remat_gen.verification.repeated_steps import STEPS, Repeats, repeats_of, steps_of_runs, told
from remat_gen.verification.report import Report
from remat_gen.verification.smaller_batch import SmallerStep
from remat_gen.verification.step import globals_of, told_free, training_step

_PARTS = (
    "planned steps",
    "planned peak",
    "original steps",
    "original peak",
    "step time",
    "smaller batch",
)

# What a step of someone else's model raises; reported, as a verification must end in a verdict.
_STEP_ERRORS = (
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    NameError,
    AssertionError,
    ArithmeticError,
)

AsUsed: TypeAlias = Callable[[nn.Module], AbstractContextManager[nn.Module]]


@dataclass(frozen=True, slots=True)
class _Subject:
    """Both models, and what they are run on."""

    original: nn.Module
    planned: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    state: State
    device: torch.device
    modelled: AbsentDevice | None
    progress: Step | None = None
    deterministic: bool = False
    as_used: AsUsed = nullcontext
    as_computed: AsUsed = nullcontext
    in_flight: int = 1

    def tell(self, part: int) -> None:
        """Report that a part begins."""
        if self.progress is not None:
            self.progress(_PARTS[part], part + 1, len(_PARTS))

    def given(self, model: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what a model is called with: in objects of the classes that its file defines."""
        args, kwargs = in_classes_of(globals_of(model), (self.args, self.kwargs))
        return args, kwargs

    def outcomes(self, model: nn.Module, steps: int = STEPS) -> list[Outcome]:
        given = self.given(model)
        with self._kernels(), self.as_computed(model) as computed:
            return run_steps(computed, self.state, *given, steps=steps)

    def _kernels(self) -> AbstractContextManager[None]:
        """Let eager run the kernels that a planned step runs."""
        return planned_kernels(self.device, self.modelled, deterministic=self.deterministic)

    def evaluated(self, model: nn.Module) -> tuple[Outcome, Outcome]:
        """Run a forward in evaluation mode, and a step behind it."""
        with self._kernels(), self.as_computed(model) as computed:
            return evaluate(computed, self.state, *self.given(model))

    def repeats(self, model: nn.Module) -> Repeats:
        runs = (self.outcomes(model, steps) for steps in steps_of_runs(self.device))
        return repeats_of(runs, self.device)

    def moves_by_order(self, model: nn.Module, repeats: Repeats) -> bool:
        """Whether deterministic kernels are to tell: sums in any order may explain what moves.

        Where more than rounding moves, state does so as well; that of first steps only would be
        taken for order, and is over where that does not move in more repeats.
        """
        if repeats.unlike is None or self.deterministic:
            return False
        if repeats.may_be_order:
            return True
        return kind_of(self.device).adds_in_any_order and self.repeats(model).moves(repeats.unlike)

    def double_outcomes(self, model: nn.Module) -> list[Outcome]:
        """Run the steps in double precision; return none where the model does not run so."""
        try:
            double = copied_with(model, model).double()
            args, kwargs = in_double((self.args, self.kwargs))
            return replace(self, args=args, kwargs=kwargs).outcomes(double)
        except Exception:  # a model's own as well: this run is a help, no verdict
            kind_of(self.device).free_unused()  # it may have been the memory
            return []

    def peak(self, model: nn.Module) -> PeakMeasurement:
        args, kwargs = copy.deepcopy(self.given(model))
        with first_step_undone(model, self.state.filled), self.as_used(model) as used:
            return model_peak(used, args, kwargs, self.device, in_flight=self.in_flight)

    def step(self, model: nn.Module) -> Callable[[], object]:
        args, kwargs = copy.deepcopy(self.given(model))

        def run() -> object:
            with self.as_computed(model) as computed:
                return training_step(computed, args, kwargs)

        return run


def verify_models(
    original: nn.Module,
    planned: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    device: torch.device,
    predicted_peak_bytes: int | None,
    budget_bytes: int | None,
    modelled: AbsentDevice | None = None,
    varies: bool = False,
    smaller: Sequence[SmallerStep] = (),
    time_steps: int = 0,
    progress: Step | None = None,
    as_used: AsUsed = nullcontext,
    as_computed: AsUsed = nullcontext,
    in_flight: int = 1,
) -> Report:
    """Run two training steps of both models from one state and seed, and compare.

    Compared are outputs, gradients, buffers, inputs and random streams after each step, and what
    both return in evaluation, which the report has where it differs. The planned model's activation
    peak is held against budget and prediction: one from `modelled` costs is shown, not judged; less
    is right where the eager rest `varies`. With `time_steps` the steps are timed in that many
    pairs; both run such steps as are in `smaller` as well, under the same budget. Peaks are those
    of the models `as_used`, sharded for one, with as many steps `in_flight`, and numbers those of
    the models `as_computed`, in another precision for one. Both models are changed: their state is
    the original's after some steps. The global random streams are put back.
    """
    original.train()
    planned.train()
    state = State.of(original, globals_of(planned).get("FILLED", ()))
    given = (original, planned, tuple(args), dict(kwargs), state, device, modelled, progress)
    subject = _Subject(*given, as_used=as_used, as_computed=as_computed, in_flight=in_flight)
    report = Report(
        predicted_peak_bytes=predicted_peak_bytes,
        budget_bytes=budget_bytes,
        modelled=modelled is not None,
        varies=varies,
    )
    with kept_generators(), told_free(planned, 0):
        report = _verify(subject, time_steps, report)
        if report.comparisons:
            asked = replace(subject, deterministic=report.deterministic)
            unlike = _unlike_in_evaluation(asked, exact=report.bitwise and not report.moving)
            report = replace(report, comparisons=(*report.comparisons, *unlike))
        if not smaller or not report.comparisons:
            return report
        subject.tell(5)
        subject = replace(subject, progress=None)
        judged = tuple((step.name, _smaller(subject, step, report)) for step in smaller)
        return replace(report, smaller=judged)


def _unlike_in_evaluation(subject: _Subject, *, exact: bool) -> Iterator[Comparison]:
    """Yield what the planned model does otherwise in evaluation, if the original repeats itself.

    Both run the same forward there, which the generated file may have got in the way of. The step
    behind it is compared where other steps were the same to the bit, in each run: they are `exact`.
    """
    try:
        wanted, again = (subject.evaluated(subject.original) for _ in range(2))
    except Exception:  # a model's own: it may be for training alone
        return
    try:
        found = subject.evaluated(subject.planned)
    except _STEP_ERRORS as error:
        yield Comparison(EVALUATION, "forward", Match.DIFFERENT, detail=_reason(error))
        return
    for expected, repeated, actual in [*zip(wanted, again, found, strict=True)][: 1 + exact]:
        steady = all(c.match is Match.BITWISE for _, c in compare_step(1, expected, repeated, {}))
        compared = compare_step(1, expected, actual, {}) if steady else ()
        yield from (c for _, c in compared if c.match is not Match.BITWISE)


def _smaller(subject: _Subject, step: SmallerStep, whole: Report) -> Report:
    subject = replace(subject, args=step.args, kwargs=step.kwargs)
    promised = Report(
        predicted_peak_bytes=step.predicted_peak_bytes,
        budget_bytes=step.free_bytes or whole.budget_bytes,
        modelled=whole.modelled,
        varies=whole.varies,
    )
    with told_free(subject.planned, step.free_bytes):
        judged = _verify(subject, 0, promised)
    if judged.failure and (reason := _failure_of(subject)):
        return Report(original_failure=reason, original_fits=False)  # no such step is there
    return judged


def _verify(subject: _Subject, time_steps: int, report: Report) -> Report:
    original, planned = subject.original, subject.planned
    try:
        subject.tell(0)
        actual = subject.outcomes(planned)
        subject.tell(1)
        report = replace(report, planned_peak=subject.peak(planned))
        planned.zero_grad(set_to_none=True)
        kind_of(subject.device).free_unused()
    except _STEP_ERRORS as error:
        return replace(report, failure=_reason(error))
    try:
        subject.tell(2)
        repeats = subject.repeats(original)
        comparisons: tuple[Comparison, ...] = ()
        in_order = subject.moves_by_order(original, repeats)
        if not in_order:
            if repeats.unlike:
                reason = told(repeats.unlike, subject.device)
                return replace(report, original_failure=reason, repeatable=False)
            comparisons = _compare(repeats, actual, subject)
            in_order = not subject.deterministic and _moved_in_repeats(comparisons, repeats)
        if in_order:
            del actual, repeats
            subject = replace(subject, deterministic=True)
            return _verify(subject, time_steps, report)
        subject.tell(3)
        report = replace(report, comparisons=comparisons, original_peak=subject.peak(original))
        report = replace(report, deterministic=subject.deterministic, moving=repeats.moving)
    except _STEP_ERRORS as error:
        return replace(
            report,
            original_failure=_reason(error),
            original_fits=not isinstance(error, torch.OutOfMemoryError),
        )
    subject.tell(4)
    return replace(report, time=_time(subject, time_steps))


def _moved_in_repeats(comparisons: Sequence[Comparison], repeats: Repeats) -> bool:
    """Whether all that is wrong are gradients that are not the original's own in each repeat.

    How far they moved in a few repeats is no bound on how far they may.
    """
    wrong = [c for c in comparisons if c.match is Match.DIFFERENT]
    return bool(wrong) and all(c.kind in GRADIENTS and repeats.moves(c) for c in wrong)


def _failure_of(subject: _Subject) -> str:
    """Return why the original cannot take a step, "" if it can."""
    try:
        subject.outcomes(subject.original)
    except _STEP_ERRORS as error:
        return _reason(error)
    return ""


def _compare(repeats: Repeats, actual: list[Outcome], subject: _Subject) -> tuple[Comparison, ...]:
    """Compare all steps; where a gradient differs, see how far off the original's is itself."""
    expected, at, original = repeats.steps, subject.device, subject.original
    comparisons = tuple(compare_steps(expected, actual, repeats.noise, at))
    if not any(c.match is Match.DIFFERENT and c.kind in GRADIENTS for c in comparisons):
        return comparisons
    nudged = replace(subject, state=subject.state.nudged(original)).outcomes(original)
    double = subject.double_outcomes(original)
    errors = noise_of_errors(expected, nudged, double, at)
    both = [larger(*pair) for pair in zip(repeats.noise, errors, strict=True)]
    return tuple(compare_steps(expected, actual, both, at))


def _time(subject: _Subject, pairs: int) -> TimeRatio | None:
    if pairs <= 0:
        return None
    original, planned, filled = subject.original, subject.planned, subject.state.filled
    steps = subject.step(original), subject.step(planned)
    with first_step_undone(original, filled), first_step_undone(planned, filled):
        return time_ratio(*steps, subject.device, pairs)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {said(error)}"
