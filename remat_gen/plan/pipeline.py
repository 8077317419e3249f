"""The whole path: load, trace, profile, solve, replay, emit, write.

Heavy modules are imported where they are used: `remat-gen --help` must not wait for torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from remat_gen.ask.budget import Breakdown, Budget
from remat_gen.ask.pin_patterns import Pinned
from remat_gen.ask.request import Request, default_output
from remat_gen.ask.rung_texts import refuse_unknown_lengths
from remat_gen.ir.errors import TraceError, UnlikeStepError, UsageError
from remat_gen.plan.output import (
    check_imports,
    check_module,
    check_plan,
    one_at_a_time,
    plan_beside,
    plan_path,
    write_all,
)
from remat_gen.terminal.progress import Progress, Stages

if TYPE_CHECKING:
    from remat_gen.capture.load.load import Loaded
    from remat_gen.capture.refuse.left_out import LeftOut
    from remat_gen.capture.trace.trace import Traced
    from remat_gen.ir.costs import Costs
    from remat_gen.ir.eager_peak import EagerPeak
    from remat_gen.ir.plan import HostCopies, Plan
    from remat_gen.picture.timeline_view import TimelineView
    from remat_gen.plan.measured_step import MeasuredStep
    from remat_gen.plan.planning import Planned


@dataclass(frozen=True, slots=True, repr=False)
class Generated:
    """A generated module and its plan. `seconds` has the time of each stage.

    `eager` is what a share of eager's peak is of.
    `lengths` says what may vary from step to step, or why nothing does that was looked for.
    `left_out` is what of the model the plan has not, though its numbers are the same. `conditions`
    are the lines of conditions that went as in the example, `values` the buffers whose values
    decided, too, `kept` what forward keeps on the model and a planned step does not, `made` the
    buffers that its first run makes, `turned` what a step finds otherwise and turns back first.
    `original` says what is wrong with the original's own step, "" where nothing is, `unplanned` the
    outputs that no gradient may come into. `waiting_bytes` are what a step holds that waits for its
    backward. `pinned` has the values that were pinned, by pattern.
    Where the existing plan's schedule was kept, `slower` is by what share of the time of the best
    that was found. `view` has what `remat-gen plot` draws.
    """

    text: str
    plan: Plan
    output: Path | None
    plan_file: Path | None
    breakdown: Breakdown | None
    costs_reused: bool
    eager: EagerPeak
    lengths: str
    left_out: tuple[LeftOut, ...]
    conditions: tuple[str, ...]
    values: tuple[str, ...]
    left: tuple[str, ...]
    unset: tuple[str, ...]
    made: tuple[str, ...]
    turned: tuple[str, ...]
    original: str
    checked: str
    unplanned: tuple[str, ...]
    waiting_bytes: int
    pinned: Pinned
    slower: float | None
    seconds: dict[str, float]
    view: Callable[[], TimelineView]

    def _repr_html_(self) -> str:
        """Show the plan in a notebook: its figures, its timeline, its blocks."""
        from remat_gen.show.notebook import plan_html

        return plan_html(self.plan, self.view())

    def __repr__(self) -> str:
        """Return what the command line says at its end."""
        from remat_gen.show.summary import summary_lines

        return "\n".join(summary_lines(self))


def generate(request: Request, progress: Progress, live: Loaded | None = None) -> Generated:
    """Plan the request's model, or one that was built already, and write the module and its plan.

    Where lengths were found that may vary, and a step is not the model's with them, it is planned
    for the example's alone.

    Raises:
        RematError: anything a user can act on; nothing is written then.
    """
    try:
        return _generate(request, progress, live)
    except UnlikeStepError as error:
        if request.dynamic is not None:
            raise
        fixed = _generate(replace(request, dynamic=()), progress, live)
        return replace(fixed, lengths=f"with others a step is not the model's: {error.reason}")


def _generate(request: Request, progress: Progress, live: Loaded | None) -> Generated:
    _refuse_unprintable(request)
    _check_output(request)
    stages = Stages(progress)
    loaded, traced = _load_and_trace(request, stages, live)
    refuse_unknown_lengths(request.rungs, traced.graph.lengths, traced.pinned)
    if request.auto_rungs and not traced.graph.lengths:
        raise UsageError(f"--rungs auto: no length varies ({traced.pinned or 'none was named'})")
    breakdown = _breakdown(request, loaded, traced)
    old = plan_beside(request.output)
    measured_before = None if request.reprofile else old
    costs, reused = _costs(request, loaded, traced, measured_before, stages)
    from remat_gen.capture.lower.value_checks import conditions_of
    from remat_gen.ir.graph import unplanned_outputs
    from remat_gen.ir.plan import plan_text
    from remat_gen.plan.emission import describe, module_text
    from remat_gen.plan.measured_step import MeasuredStep, plan_step
    from remat_gen.plan.original_step import original_of
    from remat_gen.plan.rung_planning import plan_rungs

    copies = _copies(request, loaded, measured_before, stages)
    with stages("eager"):
        eager, original = original_of(request, loaded, traced, costs, old if reused else None)
    measured = MeasuredStep(request, loaded, traced, costs, breakdown, copies, reused, eager, old)
    planned = plan_step(measured, stages)
    rungs = plan_rungs(measured, planned, stages)
    with stages("emit"), loaded.importable():
        plan = describe(measured, planned, rungs)
        problem, schedule = planned.problem, planned.schedule
        place = request.output or default_output(request.model_file)
        text = module_text(loaded, traced, problem, schedule, plan, place)
    checked = "" if original else _check_step(measured, text, stages)
    with stages("write"):
        plan_file = _write(request, loaded, text, plan_text(plan))
    return Generated(
        text=text,
        plan=plan,
        output=request.output,
        plan_file=plan_file,
        breakdown=breakdown,
        costs_reused=reused,
        eager=eager,
        lengths=traced.pinned or ", ".join(map(str, traced.graph.lengths)),
        left_out=traced.left_out,
        conditions=conditions_of(traced.graph),
        values=traced.values,
        left=traced.left,
        unset=traced.unset,
        made=traced.first.made if traced.first else (),
        turned=tuple(traced.turned),
        original=original,
        checked=checked,
        unplanned=tuple(unplanned_outputs(traced.graph)),
        waiting_bytes=planned.solution.replay.retained_bytes + traced.waiting_bytes,
        pinned=planned.pinned,
        slower=planned.solution.slower,
        seconds=dict(stages.seconds),
        view=lambda: _view(measured, planned),
    )


def _view(measured: MeasuredStep, planned: Planned) -> TimelineView:
    from remat_gen.picture.timeline_view import timeline_view

    output = measured.request.output or default_output(measured.request.model_file)
    return timeline_view(
        measured.traced.graph,
        planned.problem,
        planned.schedule,
        planned.budget_bytes,
        title=output.name,
        root=type(measured.loaded.model).__name__,
    )


def _refuse_unprintable(request: Request) -> None:
    """Refuse names that would break the lines of the generated file's comments.

    Raises:
        UsageError: the model's, or one in the command.
    """
    for text in (request.model_file.name, request.command()):
        if not text.isprintable():
            raise UsageError(f"{text!r} cannot be quoted in the generated file: rename the file")


def _check_output(request: Request) -> None:
    if request.output is not None:
        check_module(request.output, request.model_file, force=request.force)
        check_plan(plan_path(request.output), force=request.force)


def _load_and_trace(request: Request, stages: Stages, live: Loaded | None) -> tuple[Loaded, Traced]:
    with stages("load"):
        from remat_gen.capture.trace.resized_batch import at_batch
        from remat_gen.plan.costing import load_for, read_original

        source = read_original(request.model_file)
        if request.output is not None:
            check_imports(source, request.model_file, request.output)
        if request.compiled and not request.target:
            _require_compiler(request, live)
        loaded = load_for(request, live)
        if request.batch is not None:
            loaded = at_batch(loaded, request.batch)
    with stages("trace"):
        if request.units:
            from remat_gen.units.tracing_units import trace_units

            static = request.dynamic == ()
            return loaded, trace_units(loaded, request.units, static=static, sharding=request.fsdp)
        from remat_gen.capture.trace.trace import trace_loaded

        try:
            return loaded, trace_loaded(loaded, request.dynamic, request.fix)
        except TraceError as error:
            others = request.target, request.compiled, request.offload, request.batch
            if any((*others, request.dynamic, request.rungs)):  # which units do not go with
                raise
            raise TraceError(f"{error}{_units_instead(loaded)}") from error


def _units_instead(loaded: Loaded) -> str:
    """Say which units would do; none where the step itself fails or does not repeat itself."""
    from remat_gen.plan.original_step import run_twice
    from remat_gen.units.finding_units import units_that_would_do

    found = units_that_would_do(loaded)
    try:
        repeats = found and not run_twice(loaded, 0).said
    except TraceError:
        return ""
    return f"; or leave it eager: --units auto plans submodules alone ({found})" if repeats else ""


def _require_compiler(request: Request, live: Loaded | None) -> None:
    """Find out before anything is traced or measured.

    Raises:
        UsageError: torch.compile does not work on the request's device.
    """
    from remat_gen.capture.load.load import resolve_device
    from remat_gen.compile.fused_costs import require_compiler

    require_compiler(live.device if live else resolve_device(request.device))


def _breakdown(request: Request, loaded: Loaded, traced: Traced) -> Breakdown | None:
    if isinstance(request.limit, Budget):
        return None
    from remat_gen.ask.resident import resident
    from remat_gen.capture.device.kinds import kind_of

    with traced.held():
        held = resident(loaded)
    return request.limit.break_down(held, kind_of(loaded.device).headroom_bytes)


def _costs(
    request: Request, loaded: Loaded, traced: Traced, old: Plan | None, stages: Stages
) -> tuple[Costs, bool]:
    """Return costs and whether they are those of an `old` plan."""
    with stages("profile") as step:
        from remat_gen.plan.costing import costs_of

        costs, reused = costs_of(traced, loaded, request.target, old, step)
        return replace(costs, captured=request.captured), reused


def _copies(
    request: Request, loaded: Loaded, old: Plan | None, stages: Stages
) -> HostCopies | None:
    if not request.offload:
        return None
    with stages("profile"):
        from remat_gen.problem.host_copies_planned import host_copies

        return host_copies(loaded.device, request.target, old)


def _check_step(measured: MeasuredStep, text: str, stages: Stages) -> str:
    """Run a step of what was planned beside eager's: on the CPU, in the parameters' own dtype."""
    request, traced = measured.request, measured.traced
    if request.target or request.compiled or request.fsdp.parameters:
        return ""
    with stages("check"):
        from remat_gen.review.written_step import compare_written

        peak = measured.eager.nbytes if measured.eager else 0
        return compare_written(request, measured.loaded, traced, text, peak)


def _write(request: Request, loaded: Loaded, text: str, plan_text: str) -> Path | None:
    from remat_gen.capture.load.load import read_source

    if read_source(loaded.path) != loaded.source:  # comments quote its lines
        raise UsageError(
            f"{loaded.path}: changed while it was being planned; nothing was written: run again"
        )
    if request.output is None:
        return None
    plan_file = plan_path(request.output)
    with one_at_a_time(request.output):
        _check_output(request)  # the work took a while
        write_all({plan_file: plan_text, request.output: text})
    return plan_file
