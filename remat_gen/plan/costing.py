"""Where a step is planned for, and what it costs there: a device that is here, or a target.

On a device that is here the model is built and its operations are measured. For a target the model
has tensors without values, nothing is allocated, and costs are modelled from the target's rates.
"""

from __future__ import annotations

from pathlib import Path

from remat_gen.capture.load.load import Loaded, load, load_fake
from remat_gen.capture.profile import profile
from remat_gen.capture.profile.modelled import modelled_costs
from remat_gen.capture.profile.targets import find_target
from remat_gen.capture.trace.trace import Traced
from remat_gen.capture.units.unit_step import UnitStep, joined_costs
from remat_gen.ir.costs import Costs
from remat_gen.ir.plan import Plan
from remat_gen.plan.planning import known_costs
from remat_gen.terminal.progress import Step


def load_for(
    model_file: Path, model: str | None, inputs: str | None, device: str, target: str
) -> Loaded:
    """Load a model file for a device, or without values for a target where one is named.

    Raises:
        UsageError: it cannot be, or there is no such device or target.
    """
    if not target:
        return load(model_file, model, inputs, device)
    return load_fake(model_file, model, inputs, find_target(target).absent)


def costs_of(
    traced: Traced, loaded: Loaded, target: str, old: Plan | None, step: Step
) -> tuple[Costs, bool]:
    """Return costs, and whether they are those of an `old` plan, which are not measured again.

    Raises:
        UsageError: there is no such target.
    """
    if target:
        return modelled_costs(traced.graph, find_target(target)), False
    known = known_costs(old, traced.graph, loaded.device)
    if known is not None:
        return known, True
    if isinstance(traced, UnitStep):
        return _costs_of_units(traced, loaded, step), False
    return profile.profile(traced.graph, loaded.device, traced.examples, step), False


def _costs_of_units(traced: UnitStep, loaded: Loaded, step: Step) -> Costs:
    """Measure each kind of units."""
    costs = [
        profile.profile(kind.traced.graph, loaded.device, kind.traced.examples, step)
        for kind in traced.kinds
    ]
    return joined_costs(traced, costs)
