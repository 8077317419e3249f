"""What a run says at its end: a few lines for people, one object for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from remat_gen.ir.byte_text import size
from remat_gen.solver.law.search_types import INTERRUPTED
from remat_gen.solver.stable.committed_schedule import NAME as KEPT
from remat_gen.terminal.printing import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remat_gen.ir.plan import Plan
    from remat_gen.plan.pipeline import Generated
    from remat_gen.verification.report import Report

_NAMED = 3  # of what a line lists
_AS_WRITTEN = str.maketrans("{}", "[]")  # what stands in a set or a deque


def summary_lines(generated: Generated) -> list[str]:
    """Return what was planned: the budget, eager beside the plan, and where the files are."""
    rows = (*_asked(generated), *_taken_for_granted(generated), *_planned(generated))
    interrupted = [INTERRUPTED] * (INTERRUPTED in generated.plan.solver.notes)
    return [*interrupted, *(f"{word:<12}{text}" for word, text in rows)]


def _asked(generated: Generated) -> Iterator[tuple[str, str]]:
    """Say what the plan is for, and what eager's figures are without."""
    plan, eager = generated.plan, generated.eager
    share = eager.share(plan.asked.budget_bytes)
    of_eager = f"{share:.1f}% of {eager}" if share <= 100 else "more than eager needs"
    budget = f"{size(plan.asked.budget_bytes)} for activations"
    yield "budget", f"{budget}, {of_eager} ({plan.asked.budget})"
    if plan.modelled:
        yield "device", f"{plan.device}: its costs are modelled, nothing was measured"
    if generated.lengths and plan.dynamic:
        yield "inputs", f"{generated.lengths} ({', '.join(plan.dynamic)})"
    elif generated.lengths:
        yield "inputs", f"as in the example only: {generated.lengths}"
    if plan.fixed:
        each = "its numbers are" if len(plan.fixed) == 1 else "their numbers are"
        named = ", ".join(plan.fixed)
        yield "fixed", f"{named}: {each} planned for, and compared in each step"
    if plan.units:
        planned = f"{100 * plan.units.planned_share:.0f}%"
        named = ", ".join(plan.units.patterns)
        named = named if len(named) <= 60 else f"{named[:57]}…"
        yield "units", f"{named}: {planned} of what backward needs; the rest stays eager"
        if plan.units.fsdp:
            processes, *dtypes = plan.units.fsdp.split(":")
            computed = f", computes in {dtypes[0]}" if dtypes else ""
            among = f"{processes} process{'es' * (processes != '1')}{computed}"
            yield "fsdp", f"{among}: what FSDP2 gathers and reduces is counted"
    if plan.asked.in_flight > 1:
        yield "in flight", f"{plan.asked.in_flight} steps at once: peaks are those of all"
    if named := ", ".join(map(str, generated.left_out)):
        yield "left out", f"{named}: {eager.without}"
    yield from _launches(plan)


def _launches(plan: Plan) -> Iterator[tuple[str, str]]:
    """Say where the step waits for the host: there times are those of launches."""
    costs = plan.measured()
    if costs.captured and not costs.host_us:
        yield "captured", "nothing: CUDA graphs are a GPU's, and this plan is for the CPU"
    elif costs.captured:
        yield "captured", "times are the GPU's, of steps that remat_gen.capture_step replays"
    elif costs.launch_bound:
        host, device = (f"{us / 1000:.1f} ms" for us in (costs.host_us, costs.device_us))
        yield (
            "launches",
            f"bind the step: the host takes {host} for what keeps the device busy for {device}; "
            "times are the host's; remat_gen.capture_step makes a CUDA graph of a step, and "
            "--captured plans for it",
        )


def _taken_for_granted(generated: Generated) -> Iterator[tuple[str, str]]:
    """Say which branches the plan takes: another one is an error in the step; and what failed."""
    plan, found, values = generated.plan, generated.conditions, generated.values
    if found:
        are = "goes" if len(found) == 1 else "go"
        when = "" if (plan.modelled or plan).device == "cpu" else " when its backward ends"
        yield "conditions", f"{_listed(found)} {are} as in the example: each step compares{when}"
    if values:
        yield "values", f"of {_listed(values)} decide what runs: they must stay as they are"
    left = (path for path in generated.left if path not in generated.unset)
    caches = [path.lstrip(":").translate(_AS_WRITTEN) for path in left]
    if made := generated.made:
        yield "first step", f"makes {_listed(made)}: forward runs ahead, for buffers alone"
    if turned := generated.turned:
        yield "evaluation", f"turns {_listed(turned)}: forward runs ahead of the next step"
    if caches:
        yield "not kept", f"{_listed(caches)}: a planned step leaves that as it was"
    if unset := generated.unset:
        yield "not kept", f"{_listed(unset)}: forward writes it, a planned step leaves None there"
    if others := generated.unplanned:
        returned = "of the loss that is returned"
        yield "backward", f"{returned}: no gradient may come into {_listed(others)}"
    if generated.original:
        yield "original", generated.original
    if generated.checked:
        yield "check", f"a step of what was planned {generated.checked}"
    if names := _without_a_measurement(plan):  # where they failed, the step may fail as well
        estimated = "times are estimated, workspace is taken as none"
        yield "not run", f"{_listed(names)}: could not be run by themselves; {estimated}"


def _listed(names: Sequence[str]) -> str:
    return listed(names, _NAMED)


def _without_a_measurement(plan: Plan) -> list[str]:
    return [name for name, cost in plan.costs.items() if cost.modelled and not plan.modelled]


def _planned(generated: Generated) -> Iterator[tuple[str, str]]:
    """Say what was found, beside eager, and where it is."""
    plan, predicted = generated.plan, generated.plan.predicted
    if generated.pinned.pins:
        yield "pins", str(generated.pinned)
    if generated.breakdown:
        yield "", str(generated.breakdown)
    peaks = f"{size(predicted.peak_bytes)} planned, {size(generated.eager.nbytes)} eager"
    without = size(predicted.peak_bytes_without_grads)
    yield "peak", f"{peaks}; {without} after zero_grad(set_to_none=True)"
    if predicted.highest_at:
        highest = f"{size(predicted.highest_bytes)} at {predicted.highest_at}"
        yield "", f"{highest}, where values or workspace are larger"
    planned_ms, eager_ms = predicted.time_us / 1000, predicted.eager_time_us / 1000
    times = f"{planned_ms:.1f} ms planned, {eager_ms:.1f} ms eager: × {predicted.time_ratio:.3f}"
    yield "time", f"{times}, {predicted.reruns} operations run again"
    for i, rung in enumerate(plan.rungs):
        found = rung.predicted
        peaks = f"{size(found.peak_bytes)} planned, {size(found.eager_peak_bytes)} eager"
        ratio = found.time_us / max(found.eager_time_us, 1e-9)
        again = f"× {ratio:.3f}, {found.reruns} operations run again"
        yield "" if i else "rungs", f"{rung.rung}: {peaks}; {again}"
    yield from _beside(plan)
    asked, searched = plan.asked.strategy, plan.solver.strategy
    searched = searched if asked == searched else f"{asked}: {searched}"
    yield "solver", f"{searched}, {_proof(generated)}"
    seconds = [f"{name} {s:.1f} s" for name, s in generated.seconds.items() if s >= 0.05]
    yield "took", " · ".join(seconds)
    if generated.slower is not None:
        yield _chosen(plan, generated.slower)
    if generated.costs_reused:
        yield "costs", "those of the existing plan; --reprofile measures again"
    if generated.output:
        yield "written", f"{generated.output}, {generated.plan_file}"


def _beside(plan: Plan) -> Iterator[tuple[str, str]]:
    """Say what is compiled, and what goes to the host."""
    predicted, eager_us = plan.predicted, plan.predicted.eager_time_us
    if (compiled := plan.compiled) and compiled.parts:
        parts = f"{compiled.operations} operations in {compiled.parts} parts"
        yield "compiled", f"{parts}; × {compiled.apart_us / eager_us:.3f} without"
    elif compiled:
        yield "compiled", "nothing: no part would be quicker"
    if not plan.offload:
        return
    count, rate = predicted.sent_values, f"{plan.offload.bytes_per_s / 1e9:.3g} GB/s"
    if not count:
        yield "offload", f"nothing: at {rate} no value is worth it"
        return
    values = f"{count} value{'s' * (count > 1)}, {size(predicted.sent_bytes)}"
    waits = f"waits take {100 * predicted.waits_us / max(eager_us, 1e-9):.1f} %"
    yield "offload", f"{values}, go to the host at {rate} each way; {waits}"


def _proof(generated: Generated) -> str:
    """Say how good the schedule is known to be, among all schedules or those of a class."""
    plan, solver = generated.plan, generated.plan.solver
    time_us = plan.compiled.searched_us if plan.compiled else plan.predicted.time_us
    notes = [note for note in solver.notes if note != INTERRUPTED]
    if solver.status == "optimal":
        pins = " for these pins" * bool(generated.pinned.pins)
        compiled = " before parts are compiled" * bool(plan.compiled)
        return "; ".join([f"proved optimal{pins}{compiled}", *notes])
    if any(note.startswith("optimal among") for note in notes):
        return "; ".join(notes)
    gap = time_us / solver.lower_bound_us - 1 if solver.lower_bound_us else 0.0
    return "; ".join([f"at most {100 * gap:.2f}% above the optimum", *notes])


def _chosen(plan: Plan, slower: float) -> tuple[str, str]:
    """Say which schedule was taken instead of the best, what it costs, and how to get that.

    What was decided beside a kept one may even be quicker.
    """
    word = "slower" if slower > 0 else "quicker"
    by = f"{100 * abs(slower):.2f}% {word} than" if abs(slower) >= 5e-5 else "as quick as"
    if plan.solver.strategy != KEPT:
        return "alike", f"layers are planned alike: {by} the best; --effort thorough takes that"
    best = "what was found anew" if slower < -5e-5 else "the best; --fresh takes that"
    return "kept", f"the existing schedule: {by} {best}"


def summary_json(generated: Generated) -> dict[str, Any]:
    """Return the same for programs."""
    plan = generated.plan
    breakdown = generated.breakdown
    return {
        "output": str(generated.output) if generated.output else None,
        "plan": str(generated.plan_file) if generated.plan_file else None,
        "budget_bytes": plan.asked.budget_bytes,
        "eager": asdict(generated.eager),
        "breakdown": dict(breakdown.parts) | {"device": breakdown.device_bytes}
        if breakdown
        else None,
        "predicted": asdict(plan.predicted) | {"time_ratio": round(plan.predicted.time_ratio, 6)},
        "solver": asdict(plan.solver),
        "device": plan.device,
        "modelled": plan.modelled is not None,
        "not_run": _without_a_measurement(plan),
        "dynamic": list(plan.dynamic),
        "fixed": list(plan.fixed),
        "left_out": [asdict(left) for left in generated.left_out],
        "conditions": list(generated.conditions),
        "values": list(generated.values),
        "not_kept": list(generated.left),
        "made": list(generated.made),
        "turned": list(generated.turned),
        "original": generated.original,
        "keep": generated.pinned.keep,
        "recompute": generated.pinned.recompute,
        "compiled": {
            "parts": plan.compiled.parts,
            "operations": plan.compiled.operations,
            "apart_us": plan.compiled.apart_us,
        }
        if plan.compiled
        else None,
        "rungs": [
            {
                "limits": dict(rung.limits),
                "free_bytes": rung.free_bytes,
                "predicted": asdict(rung.predicted),
                "solver": asdict(rung.solver),
            }
            for rung in plan.rungs
        ],
        "offload": asdict(plan.offload) if plan.offload else None,
        "costs_reused": generated.costs_reused,
        "slower_than_best": generated.slower,
        "seconds": {name: round(s, 3) for name, s in generated.seconds.items()},
    }


def report_json(report: Report) -> dict[str, Any]:
    """Return a verification for programs."""
    original, planned = report.original_peak, report.planned_peak
    return {
        "ok": report.ok,
        "bitwise": report.bitwise,
        "budget_bytes": report.budget_bytes,
        "predicted_peak_bytes": report.predicted_peak_bytes,
        "measured_peak_bytes": planned.peak_bytes if planned else None,
        "original_peak_bytes": original.peak_bytes if original else None,
        "rows": [asdict(row) for row in report.rows()],
    }


def report_table(report: Report) -> Table:
    """Return a verification for people."""
    table = Table(box=None, pad_edge=False, show_header=False)
    marks = {True: "[green]ok[/]", False: "[red]FAILED[/]", None: ""}
    for row in report.rows():
        table.add_row(row.what, marks[row.ok], row.result, escape(row.detail))
    return table
