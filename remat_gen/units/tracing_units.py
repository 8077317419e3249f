"""From a model and patterns to the traced step of its units."""

from __future__ import annotations

from remat_gen.capture.load.load import Loaded
from remat_gen.capture.units.computed_precision import as_computed
from remat_gen.capture.units.sharding import NOT_SHARDED, Sharding, parse_sharding
from remat_gen.capture.units.unit_kinds import Kinds
from remat_gen.capture.units.unit_step import EagerParts, UnitStep, unit_step
from remat_gen.ir.plan import PlannedUnits
from remat_gen.units.boundary_steps import kept_by_units, measure_eager_parts, record_calls
from remat_gen.units.finding_units import AUTO, trace_found_units


def trace_units(
    loaded: Loaded, patterns: tuple[str, ...], *, static: bool, sharding: Sharding = NOT_SHARDED
) -> UnitStep:
    """Trace the units that patterns name, or those found, and measure what lies between them.

    With a `sharding` that is with what FSDP2 holds, and in the precision that it computes in.

    Raises:
        RematError: a pattern names no unit, the model's step fails, or a unit cannot be traced.
    """
    computed = as_computed(loaded, sharding.parameters)
    if patterns == (AUTO,):
        return trace_found_units(loaded, computed, static=static, sharding=sharding)
    examples = record_calls(computed, patterns, sharding.parameters, static=static)
    kinds = Kinds(computed, static)
    keeps = kept_by_units(computed, examples, kinds, sharding.parameters)
    eager = measure_eager_parts(loaded, examples, keeps, sharding)
    return unit_step(computed, examples, eager, kinds)


def retrace_units(loaded: Loaded, units: PlannedUnits) -> UnitStep:
    """Trace the units of a plan again; what lies between them is not measured, but the plan's."""
    sharding = parse_sharding(units.fsdp)
    dtype = sharding.parameters
    computed = as_computed(loaded, dtype)
    examples = record_calls(computed, units.patterns, dtype, static=units.static)
    kinds = Kinds(computed, units.static)
    kept_by_units(computed, examples, kinds, dtype)
    phases = 2 * len(examples.calls)
    held = units.held_bytes if len(units.held_bytes) == phases else (0,) * phases  # other units
    eager = EagerParts(held, sharded=bool(sharding))
    return unit_step(computed, examples, eager, kinds)
