"""From a model and patterns to the traced step of its units."""

from __future__ import annotations

from remat_gen.capture.load.load import Loaded
from remat_gen.capture.units.unit_kinds import Kinds
from remat_gen.capture.units.unit_step import EagerParts, UnitStep, unit_step
from remat_gen.ir.plan import PlannedUnits
from remat_gen.units.boundary_steps import measure_eager_parts, record_calls
from remat_gen.units.finding_units import AUTO, trace_found_units


def trace_units(
    loaded: Loaded, patterns: tuple[str, ...], *, static: bool, fsdp: int = 0
) -> UnitStep:
    """Trace the units that patterns name, or those found, and measure what lies between them.

    With `fsdp`, the number of processes that FSDP2 shards over, that is with what it holds.

    Raises:
        RematError: a pattern names no unit, the model's step fails, or a unit cannot be traced.
    """
    if patterns == (AUTO,):
        return trace_found_units(loaded, static=static, fsdp=fsdp)
    examples = record_calls(loaded, patterns)
    eager = measure_eager_parts(loaded, examples, fsdp)
    return unit_step(loaded, examples, eager, Kinds(loaded, static))


def retrace_units(loaded: Loaded, units: PlannedUnits) -> UnitStep:
    """Trace the units of a plan again; what lies between them is not measured, but the plan's.

    Raises:
        RematError: as `trace_units`.
    """
    examples = record_calls(loaded, units.patterns)
    return unit_step(loaded, examples, EagerParts(units.held_bytes), Kinds(loaded, units.static))
