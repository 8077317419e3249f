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
    from remat_gen.ir.plan import Plan, PlannedUnits, Predicted
    from remat_gen.plan.pipeline import Generated
    from remat_gen.verification.report import Report

_NAMED = 3  # of what a line lists
_AS_WRITTEN = str.maketrans("{}", "[]")  # what stands in a set or a deque


def summary_lines(generated: Generated) -> list[str]:
    """Return what was planned: the budget, eager beside the plan, and where the files are."""
    plan, predicted = generated.plan, generated.plan.predicted
    share = generated.eager.share(plan.asked.budget_bytes)
    of_eager = f"{share:.1f}% of {generated.eager}" if share <= 100 else "more than eager needs"
    budget = f"{size(plan.asked.budget_bytes)} for activations, {of_eager} ({plan.asked.budget})"
    lines = [f"budget      {budget}"]
    if plan.modelled:
        lines.append(f"device      {plan.device}: its costs are modelled, nothing was measured")
    if generated.lengths:
        lines.append(f"inputs      {_lengths(generated)}")
    if plan.fixed:
        each = "its numbers are" if len(plan.fixed) == 1 else "their numbers are"
        named = ", ".join(plan.fixed)
        lines.append(f"fixed       {named}: {each} planned for, and compared in each step")
    if plan.units:
        planned = f"{100 * plan.units.planned_share:.0f}%"
        named = ", ".join(plan.units.patterns)
        named = named if len(named) <= 60 else f"{named[:57]}…"
        lines.append(f"units       {named}: {planned} of what backward needs; the rest stays eager")
        if plan.units.fsdp:
            lines.append(f"fsdp        {_sharded(plan.units)}")
    if plan.asked.in_flight > 1:
        lines.append(f"in flight   {plan.asked.in_flight} steps at once: peaks are those of all")
    lines += _left_out(generated)
    lines += _launches(plan)
    lines += _as_in_example(generated)
    if generated.unplanned:
        others = listed(generated.unplanned, _NAMED)
        lines.append(
            f"backward    of the loss that is returned: no gradient may come into {others}"
        )
    if generated.original:
        lines.append(f"original    {generated.original}")
    if generated.checked:
        lines.append(f"check       a step of what was planned {generated.checked}")
    lines += _not_measured(plan)
    if generated.pinned.pins:
        lines.append(f"pins        {generated.pinned}")
    if generated.breakdown:
        lines.append(f"            {generated.breakdown}")
    if INTERRUPTED in plan.solver.notes:
        lines.insert(0, INTERRUPTED)
    asked, searched = plan.asked.strategy, plan.solver.strategy
    searched = searched if asked == searched else f"{asked}: {searched}"
    seconds = [f"{name} {s:.1f} s" for name, s in generated.seconds.items() if s >= 0.05]
    lines += [
        f"peak        {size(predicted.peak_bytes)} planned, {size(generated.eager.nbytes)} "
        f"eager; {size(predicted.peak_bytes_without_grads)} after zero_grad(set_to_none=True)",
        *_highest(predicted),
        f"time        {predicted.time_us / 1000:.1f} ms planned, "
        f"{predicted.eager_time_us / 1000:.1f} ms eager: × {predicted.time_ratio:.3f}, "
        f"{predicted.reruns} operations run again",
        *_rungs(plan),
        *_compiled(plan),
        *_offloaded(plan),
        f"solver      {searched}, {_proof(generated)}",
        f"took        {' · '.join(seconds)}",
    ]
    if generated.slower is not None:
        lines.append(_chosen(plan, generated.slower))
    if generated.costs_reused:
        lines.append("costs       those of the existing plan; --reprofile measures again")
    if generated.output:
        lines.append(f"written     {generated.output}, {generated.plan_file}")
    return lines


def _sharded(units: PlannedUnits) -> str:
    processes, *dtypes = units.fsdp.split(":")
    computed = f", computes in {dtypes[0]}" if dtypes else ""
    among = f"{processes} process{'es' * (processes != '1')}"
    return f"{among}{computed}: what FSDP2 gathers and reduces is counted"


def _highest(predicted: Predicted) -> list[str]:
    if not predicted.highest_at:
        return []
    peak, where = size(predicted.highest_bytes), predicted.highest_at
    return [f"            {peak} at {where}, where values or workspace are larger"]


def _rungs(plan: Plan) -> list[str]:
    """Return a line for each rung; the lines above are of the whole range."""
    lines = []
    for word, planned in zip(("rungs", *[""] * len(plan.rungs)), plan.rungs, strict=False):
        found = planned.predicted
        ratio = found.time_us / max(found.eager_time_us, 1e-9)
        lines.append(
            f"{word:<12}{planned.rung}: {size(found.peak_bytes)} planned, "
            f"{size(found.eager_peak_bytes)} eager; × {ratio:.3f}, {found.reruns} operations "
            "run again"
        )
    return lines


def _compiled(plan: Plan) -> list[str]:
    if plan.compiled is None:
        return []
    if not plan.compiled.parts:
        return ["compiled    nothing: no part would be quicker"]
    ratio = plan.compiled.apart_us / plan.predicted.eager_time_us
    return [
        f"compiled    {plan.compiled.operations} operations in {plan.compiled.parts} parts; "
        f"× {ratio:.3f} without"
    ]


def _offloaded(plan: Plan) -> list[str]:
    if plan.offload is None:
        return []
    count, rate = plan.predicted.sent_values, f"{plan.offload.bytes_per_s / 1e9:.3g} GB/s"
    if not count:
        return [f"offload     nothing: at {rate} no value is worth it"]
    waits = 100 * plan.predicted.waits_us / max(plan.predicted.eager_time_us, 1e-9)
    values = "1 value" if count == 1 else f"{count} values"
    return [
        f"offload     {values}, {size(plan.predicted.sent_bytes)}, go to the host at {rate} each "
        f"way; waits take {waits:.1f} %"
    ]


def _lengths(generated: Generated) -> str:
    if generated.plan.dynamic:
        return f"{generated.lengths} ({', '.join(generated.plan.dynamic)})"
    return f"as in the example only: {generated.lengths}"


def _left_out(generated: Generated) -> list[str]:
    """Say what eager's figures are without: its checkpoints, torch's backward of an RNN."""
    named = ", ".join(map(str, generated.left_out))
    return [f"left out    {named}: {generated.eager.without}"] if named else []


def _launches(plan: Plan) -> list[str]:
    """Say where the step waits for the host: there times are those of launches."""
    costs = plan.measured()
    if costs.captured and not costs.host_us:
        return ["captured    nothing: CUDA graphs are a GPU's, and this plan is for the CPU"]
    if costs.captured:
        return ["captured    times are the GPU's, of steps that remat_gen.capture_step replays"]
    if not costs.launch_bound:
        return []
    host, device = (f"{us / 1000:.1f} ms" for us in (costs.host_us, costs.device_us))
    return [
        f"launches    bind the step: the host takes {host} for what keeps the device busy for "
        f"{device}; times are the host's; remat_gen.capture_step makes a CUDA graph of a step, and "
        "--captured plans for it"
    ]


def _as_in_example(generated: Generated) -> list[str]:
    """Say which branches the plan takes for granted; another one is an error in the step."""
    found, values = generated.conditions, listed(generated.values, _NAMED)
    lines = []
    if found:
        are = "goes" if len(found) == 1 else "go"
        device = generated.plan.modelled or generated.plan
        when = "" if device.device == "cpu" else " when its backward ends"
        lines.append(
            f"conditions  {listed(found, _NAMED)} {are} as in the example: each step compares{when}"
        )
    if values:
        lines.append(f"values      of {values} decide what runs: they must stay as they are")
    made, turned, unset = (
        listed(names, _NAMED) for names in (generated.made, generated.turned, generated.unset)
    )
    left = (path for path in generated.left if path not in generated.unset)
    caches = listed([path.lstrip(":").translate(_AS_WRITTEN) for path in left], _NAMED)
    if made:
        lines.append(f"first step  makes {made}: forward runs ahead, for buffers alone")
    if turned:
        lines.append(f"evaluation  turns {turned}: forward runs ahead of the next step")
    if caches:
        lines.append(f"not kept    {caches}: a planned step leaves that as it was")
    if unset:
        lines.append(f"not kept    {unset}: forward writes it, a planned step leaves None there")
    return lines


def _not_measured(plan: Plan) -> list[str]:
    """Say which operations could not be measured: where they failed, the step may fail as well."""
    names = _without_a_measurement(plan)
    if not names:
        return []
    return [
        f"not run     {listed(names, _NAMED)}: could not be run by themselves; "
        "times are estimated, workspace is taken as none"
    ]


def _without_a_measurement(plan: Plan) -> list[str]:
    return [name for name, cost in plan.costs.items() if cost.modelled and not plan.modelled]


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


def _chosen(plan: Plan, slower: float) -> str:
    """Say which schedule was taken instead of the best, what it costs, and how to get that.

    What was decided beside a kept one may even be quicker.
    """
    word = "slower" if slower > 0 else "quicker"
    by = f"{100 * abs(slower):.2f}% {word} than" if abs(slower) >= 5e-5 else "as quick as"
    if plan.solver.strategy == KEPT and slower < -5e-5:
        return f"kept        the existing schedule: {by} what was found anew"
    if plan.solver.strategy == KEPT:
        return f"kept        the existing schedule: {by} the best; --fresh takes that"
    return f"alike       layers are planned alike: {by} the best; --effort thorough takes that"


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
