"""What eager's step needs: measured where it can be run, as `verify` measures it, else predicted.

The prediction stays where the measured peak agrees with it as `verify` asks of predictions: so the
plan does not depend on the last bytes, which kernels choose by the processor. Elsewhere the
measured peak counts, to four digits upwards. It is in the plan, which planning again goes by.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from remat_gen.ask.request import Request
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.trace.trace import Traced
from remat_gen.capture.units.unit_step import UnitStep
from remat_gen.ir.costs import Costs
from remat_gen.ir.eager_peak import EagerPeak, PeakSource
from remat_gen.ir.plan import plan_there
from remat_gen.plan.in_flight import InFlight
from remat_gen.plan.original_repeats import kept_original, need_to_run
from remat_gen.plan.output import plan_path
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.solve import Solver
from remat_gen.verification.peak import model_peak
from remat_gen.verification.report import as_predicted
from remat_gen.verification.step import clear_gradients

_DIGITS = 4


def besides_graph(traced: Traced) -> int:
    """Return what a step that waits for its backward holds and no graph has."""
    return traced.waiting_bytes if isinstance(traced, UnitStep) else 0


def eager_peak(
    request: Request, loaded: Loaded, traced: Traced, costs: Costs, *, reused: bool
) -> EagerPeak:
    """Return eager's peak; with `reused` costs that which the plan at the output has measured."""
    plain = Solver(problem_of(traced.graph, costs), "none").plain
    flight = InFlight(request.in_flight, besides_graph(traced))
    predicted = flight.of(plain).peak_bytes
    known = _in_plan(request, predicted) if reused else 0
    if known:
        return EagerPeak(known, PeakSource.MEASURED)
    return judged(predicted, _Original(request, loaded, predicted).peak_bytes())


def judged(predicted: int, measured: int | None) -> EagerPeak:
    """Return the one of both that counts; `measured` is None where no step was run."""
    if measured is None:
        return EagerPeak(predicted, PeakSource.PREDICTED)
    if as_predicted(predicted, measured):
        return EagerPeak(predicted, PeakSource.CONFIRMED)
    return EagerPeak(_rounded(measured), PeakSource.MEASURED)


def _rounded(nbytes: int) -> int:
    """Round up to a few digits."""
    step: int = 10 ** max(len(str(nbytes)) - _DIGITS, 0)
    return -(-nbytes // step) * step


def _in_plan(request: Request, predicted: int) -> int:
    """Return the measured peak in the plan at the output, made for the same prediction."""
    plan = plan_there(plan_path(request.output)) if request.output else None
    if plan is None or plan.predicted.eager_peak_bytes != predicted:
        return 0
    return plan.predicted.eager_measured_bytes


@dataclass(frozen=True, slots=True)
class _Original:
    request: Request
    loaded: Loaded
    predicted: int

    def peak_bytes(self) -> int | None:
        """Measure the original's second step; return None where it cannot be run."""
        request, loaded = self.request, self.loaded
        need = need_to_run(loaded, self.predicted)
        if request.target or request.fsdp or need is None or not need.fits:
            return None
        try:
            with kept_original(loaded):
                args, kwargs = copy.deepcopy((tuple(loaded.args), dict(loaded.kwargs)))
                clear_gradients(loaded.model, args, kwargs)
                flight = request.in_flight
                found = model_peak(loaded.model, args, kwargs, loaded.device, in_flight=flight)
        except Exception:  # of the user's own code: `run_twice` says so
            return None
        return found.peak_bytes
