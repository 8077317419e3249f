"""What compiled functions cost: as an existing plan says, as measured, as a target is modelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from remat_gen.capture.compiled import Candidate, measure
from remat_gen.capture.load import Loaded
from remat_gen.capture.modelled_parts import modelled_parts
from remat_gen.capture.profile import device_name
from remat_gen.capture.targets import find_target
from remat_gen.capture.trace import Traced
from remat_gen.emission import torch_version
from remat_gen.fusion import Measure
from remat_gen.ir.costs import Costs, PartCost
from remat_gen.ir.errors import UsageError
from remat_gen.ir.plan import read_plan
from remat_gen.progress import Step


def measure_for(
    target: str, loaded: Loaded, traced: Traced, costs: Costs, plan_file: Path | None, step: Step
) -> Measure:
    """Return what tells the costs of functions; those of the plan are not measured again."""
    if target:
        hardware = find_target(target)
        return lambda candidates: modelled_parts(traced.graph, hardware, costs, candidates)
    known = dict(_known(plan_file, loaded)) if plan_file else {}

    def measured(candidates: Sequence[Candidate]) -> Mapping[str, PartCost]:
        unknown = [c for c in candidates if c.key not in known]
        known.update(measure(traced.graph, loaded.device, traced.examples, unknown, step))
        return {c.key: known[c.key] for c in candidates}

    return measured


def _known(plan_file: Path, loaded: Loaded) -> Mapping[str, PartCost]:
    """Return the costs of a plan of this device and this torch, whose compiler it is."""
    try:
        plan = read_plan(plan_file)
    except UsageError:
        return {}
    same = plan.device == device_name(loaded.device) and plan.modelled is None
    if plan.compiled is None or not same or plan.versions.torch != torch_version():
        return {}
    return plan.compiled.costs
