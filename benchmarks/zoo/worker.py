"""One model of the zoo, in a process of its own: generate, verify, send its record."""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

from operators import import_torchvision
from record import Record, Status

from remat_gen.ask.budget import parse_budget
from remat_gen.ask.request import Request, Strategy
from remat_gen.capture.device.kind import Time
from remat_gen.capture.load.load import load
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.ir.errors import EmitError, InfeasibleBudgetError, RematError
from remat_gen.plan.costing import costs_of
from remat_gen.plan.original_step import predicted_peak
from remat_gen.plan.pipeline import Generated, generate
from remat_gen.problem.step_problem import problem_of
from remat_gen.review.verifying import verify_file
from remat_gen.solver.solve import Solver
from remat_gen.terminal.progress import Progress
from remat_gen.verification.followed_step import followed
from remat_gen.verification.outcome import left_as_it_was
from remat_gen.verification.peak import model_peak
from remat_gen.verification.report import Report
from remat_gen.verification.step import training_step


@dataclass(frozen=True, slots=True)
class Asked:
    """What a model is planned for: a budget, units or the whole, a device."""

    budget: str
    units: tuple[str, ...] = ()
    device: str = "cpu"


Work: TypeAlias = Callable[[Path, Record, Asked], Record]

_NEEDED = """
    transformers torch._dynamo.functional_export torch._functorch.aot_autograd
    remat_gen.capture.trace.trace remat_gen.capture.profile.profile remat_gen.plan.emission
    remat_gen.plan.planning
""".split()


def run(source: Path, blank: Record, asked: Asked) -> Record:
    """Return what became of a model, or of units of it."""
    if why := _why_eager_fails(source, asked.device):
        return replace(blank, status=Status.NO_SUBJECT, error=why)
    try:
        planned, notes, eager = _generate(source, Strategy(blank.strategy), asked)
        output = source.with_name(f"{source.stem}_remat.py")
        blank = replace(blank, notes=notes, eager_predicted_bytes=eager)
        return _judged(blank, planned, verify_file(output))
    except RematError as error:
        ours = isinstance(error, EmitError)
        return replace(blank, status=Status.FAILED if ours else Status.REFUSED, error=_one(error))
    except Exception as error:  # whatever it is, it is the outcome
        return replace(blank, status=Status.FAILED, error=f"{type(error).__name__}: {_one(error)}")


def eager_alone(source: Path, known: Record, asked: Asked) -> Record:
    """Return what is known of a model with eager's peak, predicted and measured, and no plan."""
    loaded = load(source, device=asked.device)
    try:
        traced = trace_loaded(loaded, ())
        with _untimed():
            costs, _ = costs_of(traced, loaded, "", None, lambda *_: None)
    except RematError:
        return known
    replayed = Solver(problem_of(traced.graph, costs), "none").plain.peak_bytes
    exact = followed(loaded, traced, costs)
    found = predicted_peak(replayed, exact.peak_bytes if exact else None)
    with left_as_it_was(loaded.model):
        peak = model_peak(loaded.model, loaded.args, loaded.kwargs, loaded.device).peak_bytes
    return replace(known, eager_bytes=peak, eager_predicted_bytes=found.nbytes)


@contextlib.contextmanager
def _untimed() -> Iterator[None]:
    """Find out whether operations run; how long they take is nobody's concern."""
    measuring = "remat_gen.capture.profile.profile"
    with (
        mock.patch(f"{measuring}.time_warm", lambda *_: Time(1.0)),
        mock.patch(f"{measuring}.time_again", lambda *_: Time(1.0)),
        mock.patch(f"{measuring}.copies_needed", lambda *_: 1),
    ):
        yield


def _why_eager_fails(source: Path, device: str) -> str:
    try:
        loaded = load(source, device=device)
        training_step(loaded.model, loaded.args, loaded.kwargs)
    except Exception as error:  # of somebody's model: anything
        return f"{type(error).__name__}: {_one(error)}"
    return ""


def _generate(source: Path, strategy: Strategy, asked: Asked) -> tuple[Generated, str, int]:
    """Generate at a budget, or at the smallest feasible one; predict eager's peak, too."""
    output = source.with_name(f"{source.stem}_remat.py")
    limit, where = parse_budget(asked.budget), asked.device
    request = Request(source, limit, output, device=where, strategy=strategy, units=asked.units)
    loaded, traces, notes = load(source, device=where), list[Any](), ""
    with ExitStack() as stack:
        if not asked.units:
            stack.enter_context(_once("trace.trace.trace", traces))
            stack.enter_context(_once("profile.profile.profile", []))
        try:
            made = generate(request, Progress(), loaded)
        except InfeasibleBudgetError as error:
            notes = f"{asked.budget} is infeasible: smallest budget"
            again = replace(request, limit=parse_budget(str(error.smallest_bytes)))
            made = generate(again, Progress(), loaded)
    eager = made.plan.predicted.eager_peak_bytes
    exact = followed(loaded, traces[0], made.plan.measured()) if traces else None
    return made, notes, predicted_peak(eager, exact.peak_bytes if exact else None).nbytes


def _once(name: str, answers: list[Any]) -> AbstractContextManager[object]:
    """Let a function of capture answer from memory when it is called again."""
    module, _, attribute = f"remat_gen.capture.{name}".rpartition(".")
    work = getattr(importlib.import_module(module), attribute)

    def remembered(*args: Any, **kwargs: Any) -> Any:
        if not answers:
            answers.append(work(*args, **kwargs))
        return answers[0]

    return mock.patch(f"{module}.{attribute}", remembered)


def _judged(blank: Record, planned: Generated, report: Report) -> Record:
    plan = planned.plan
    predicted = plan.predicted
    wrong = [f"{row.what}: {row.result}: {row.detail}" for row in report.rows() if row.ok is False]
    measured, eager = report.planned_peak, report.original_peak
    return replace(
        blank,
        status=Status.FAILED if wrong else Status.OK,
        error="; ".join(wrong),
        operations=len(plan.costs),
        blocks=len(plan.blocks),
        share=round(predicted.eager.share(plan.asked.budget_bytes), 1),
        budget_bytes=plan.asked.budget_bytes,
        predicted_bytes=predicted.peak_bytes,
        measured_bytes=measured.peak_bytes if measured else 0,
        eager_bytes=eager.peak_bytes if eager else 0,
        time_ratio=round(predicted.time_us / predicted.eager_time_us, 3),
        reruns=predicted.reruns,
        equal="bitwise" if report.bitwise else "within tolerance" if report.ok else "",
        units=plan.units.patterns if plan.units else (),
        planned_share=plan.units.planned_share if plan.units else 1.0,
    )


def _one(error: Exception) -> str:
    return " ".join(str(error).split())[:600]


def preload() -> None:
    """Import what every worker needs, once, before workers are forked."""
    import_torchvision()
    for name in _NEEDED:
        importlib.import_module(name)


def work(how: Work, source: Path, blank: Record, asked: Asked, answer: Connection) -> None:
    """Send the record of a model; what models print goes to stderr."""
    os.dup2(2, 1)
    began = time.monotonic()
    record = how(source, blank, asked)
    answer.send(replace(record, seconds=blank.seconds or round(time.monotonic() - began, 1)))
    answer.close()
