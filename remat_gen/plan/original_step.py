"""The original's own step, run while planning where it fits into memory: for its bits and its peak.

Does it repeat itself? What it reads was told by runs on fake tensors
(`capture/observe/repeats.py`); values show here. On the CPU every bit counts; on a GPU additions in
any order are no news.

What does it need? Where the measured peak agrees with the prediction to a percent (or 4 KiB; 64
where eager takes less), the prediction stays: so no plan depends on the last bytes, which kernels
choose by the processor. Elsewhere the measured peak counts, to four digits upwards. It is in the
plan, and planning again goes by that. Where nothing is measured, the step is followed on tensors
without values; that counts where it is more than a percent from the replay.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from remat_gen.ask.budget import Budget
from remat_gen.ask.request import Request
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.process.generators import kept_generators
from remat_gen.capture.process.operands import lack_values
from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.trace.trace import Traced
from remat_gen.capture.values.held import kept_as_it_is
from remat_gen.capture.values.holding import Holding
from remat_gen.ir.byte_text import size
from remat_gen.ir.costs import Costs
from remat_gen.ir.eager_peak import EagerPeak, PeakSource
from remat_gen.ir.errors import TraceError, said
from remat_gen.ir.plan import Plan
from remat_gen.plan.in_flight import InFlight
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.solve import Solver
from remat_gen.verification.compare import Comparison, Match
from remat_gen.verification.followed_step import followed
from remat_gen.verification.noise import compare_repeats
from remat_gen.verification.outcome import State, left_as_it_was, repeat_step
from remat_gen.verification.peak import model_peak
from remat_gen.verification.repeated_steps import told
from remat_gen.verification.step import clear_gradients

_COPIES = 6  # of the state: the model's, its copy, gradients, and what two runs are compared by
_DIGITS = 4  # of a measured peak
_NEAR = 0.01  # the replay stays, by which a plan without re-runs is within 100 %
_NEAR_BYTES = 4096
_STATES_BYTES = 64 * 1024  # a plan has states of generators, for draws that it repeats; eager none


def need_to_run(loaded: Loaded, eager_peak_bytes: int) -> int | None:
    """Return the bytes that the original's step needs; None where planning does not run it: off
    the CPU."""
    state = [*loaded.model.parameters(), *loaded.model.buffers()]
    if loaded.device.type != "cpu" or lack_values(state):
        return None
    dense = (t.nbytes for t in state if t.layout is torch.strided)
    return eager_peak_bytes + _COPIES * sum(dense)


def is_there(nbytes: int) -> bool:
    """Tell whether so much memory is free, and as much again."""
    return nbytes <= _available_bytes() // 2


@contextlib.contextmanager
def kept_original(loaded: Loaded, filled: Sequence[str]) -> Iterator[State]:
    """Run the model's step, and have all that it changes as it was: its `filled` buffers, too."""
    with (
        left_as_it_was(loaded.model, filled) as state,
        kept_as_it_is(loaded.model),
        loaded.importable(),
        kept_generators(),
        quiet(),
    ):
        yield state


@dataclass(frozen=True, slots=True)
class Runs:
    """What runs of the original's step told: its activation peak, None where it did not run.

    `said` is what there is to say beside it, mostly "".
    """

    said: str = ""
    peak_bytes: int | None = None


def run_twice(
    loaded: Loaded, predicted: int, filled: Sequence[str] = (), in_flight: int = 1
) -> Runs:
    """Run the original's step twice on the CPU; its first step fills the buffers `filled`.

    Raises:
        TraceError: the second run is off by more than additions in another order explain.
    """
    need = need_to_run(loaded, predicted)
    if need is None:
        return Runs()
    if not is_there(need):
        why = f"it needs {size(need)}; whether it repeats itself is not known"
        return Runs(f"was not run twice: {why}")
    try:
        found, peak_bytes = _compared(loaded, filled, in_flight)
    except TraceError:
        raise
    except Exception as error:  # of the user's own code
        failed = f"{type(error).__name__}: {said(error)[:200]}"
        return Runs(f"has a step of its own that fails: {failed}")
    # signs of zeros that were added to zeros are no difference
    unlike = [c for c in found if c.match is not Match.BITWISE and c.difference != 0]
    for one in unlike:
        if one.match is Match.DIFFERENT:
            raise TraceError(f"the original does not repeat itself: {told(one, loaded.device)}")
    words = f"does not repeat itself to the bit: {told(unlike[0], loaded.device)}" if unlike else ""
    return Runs(words, peak_bytes)


def _compared(
    loaded: Loaded, filled: Sequence[str], in_flight: int
) -> tuple[list[Comparison], int]:
    """Compare two runs of one step; return all, and the peak of a second step."""
    with kept_original(loaded, filled) as state:
        holding, given = Holding.of(loaded.model), (loaded.args, loaded.kwargs)
        (once, again), peak = repeat_step(loaded.model, state, *given, in_flight)
        if filled or holding.is_left:  # by the second run, too, which began as the first
            args, kwargs = copy.deepcopy((tuple(loaded.args), dict(loaded.kwargs)))
            peak = model_peak(loaded.model, args, kwargs, loaded.device, in_flight=in_flight)
    return compare_repeats([once], [again], loaded.device)[1], peak.peak_bytes


def _available_bytes() -> int:
    """Return the bytes of memory that are free, as far as the system says so."""
    table = Path("/proc/meminfo")
    lines = table.read_text(encoding="utf-8").splitlines() if table.is_file() else []
    words = dict(line.split(":", 1) for line in lines)
    if "MemAvailable" in words:
        return 1024 * int(words["MemAvailable"].split()[0])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def filled_in(traced: Traced) -> tuple[str, ...]:
    """Return the buffers that the original's first step fills."""
    return traced.first.filled if traced.first else ()


def original_of(
    request: Request, loaded: Loaded, traced: Traced, costs: Costs, old: Plan | None
) -> tuple[EagerPeak, str]:
    """Run the original's step, where it can be run; return eager's peak, and what to say beside it.

    That is whether it repeats itself, mostly "". Where the costs are those of an `old` plan, the
    peak is what that has measured.

    Raises:
        TraceError: it does not repeat itself.
    """
    plain = Solver(problem_of(traced.graph, costs), "none").plain
    flight = InFlight(request.in_flight, traced.waiting_bytes)
    replayed = flight.of(plain).peak_bytes
    runs = _run(request, loaded, traced, replayed)
    if old and old.asked.budget.endswith("%") and old.predicted.eager_peak_bytes == replayed:
        # with another number of threads kernels may need other workspace: it is not asked anew
        return old.predicted.eager, runs.said
    if runs.peak_bytes is not None and _asks_share(request):
        return judged(replayed, runs.peak_bytes), runs.said
    there = followed(loaded, traced, costs)
    exact = flight.of(replace(plain, **asdict(there))).peak_bytes if there else None
    return predicted_peak(replayed, exact), runs.said


def _asks_share(request: Request) -> bool:
    """Tell whether a share of eager's peak was asked for, of a model that is whole here."""
    share = isinstance(request.limit, Budget) and request.limit.percent is not None
    return share and not request.fsdp


def _run(request: Request, loaded: Loaded, traced: Traced, replayed: int) -> Runs:
    """Run the step here; on a GPU once after another, for its peak alone."""
    filled, flight = filled_in(traced), request.in_flight
    if request.target:
        return Runs()
    if not kind_of(loaded.device).is_accelerator:
        return run_twice(loaded, replayed, filled, flight)
    if not _asks_share(request) or lack_values(loaded.model.state_dict().values()):
        return Runs()
    try:
        with kept_original(loaded, filled):
            args, kwargs = copy.deepcopy((tuple(loaded.args), dict(loaded.kwargs)))
            clear_gradients(loaded.model, args, kwargs)
            found = model_peak(loaded.model, args, kwargs, loaded.device, in_flight=flight)
    except Exception:  # of the user's own code; a device that is too small
        kind_of(loaded.device).free_unused()
        return Runs()
    return Runs(peak_bytes=found.allocated_peak_bytes or found.peak_bytes)  # in a GPU's blocks


def predicted_peak(replayed: int, exact: int | None) -> EagerPeak:
    """Return the one of both predictions that counts; `exact` is None where none was followed."""
    if exact is None or abs(exact - replayed) <= _NEAR * replayed:
        return EagerPeak(replayed, PeakSource.PREDICTED)
    return EagerPeak(exact, PeakSource.FOLLOWED)


def judged(replayed: int, measured: int) -> EagerPeak:
    """Return the one of both that counts."""
    near = max(_NEAR * measured, _NEAR_BYTES if measured > replayed else _STATES_BYTES)
    if abs(replayed - measured) <= near:
        return EagerPeak(replayed, PeakSource.CONFIRMED)
    step: int = 10 ** max(len(str(measured)) - _DIGITS, 0)
    return EagerPeak(-(-measured // step) * step, PeakSource.MEASURED)
