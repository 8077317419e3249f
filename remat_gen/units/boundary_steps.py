"""Run a model's own step at its units' boundaries: how units are called, what eager needs between.

Units keep nothing but their inputs in these runs, so that they fit where a planned step does.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeAlias

import torch

from remat_gen.capture.load.load import Loaded
from remat_gen.capture.load.step_context import autocast_of, context_of
from remat_gen.capture.process.generators import seed_all
from remat_gen.capture.process.operands import is_bitwise_equal
from remat_gen.capture.units.boundary import BoundaryRun, Keeping, Phase, UnfitUnitError
from remat_gen.capture.units.computed_precision import computing_in
from remat_gen.capture.units.fully_sharded import as_used
from remat_gen.capture.units.patterns import find_units
from remat_gen.capture.units.sharding import NOT_SHARDED, Sharding
from remat_gen.capture.units.shared_parameters import bytes_read
from remat_gen.capture.units.step_memory import Inside, between_units, times_between
from remat_gen.capture.units.step_settings import settings
from remat_gen.capture.units.unit_kinds import Examples, Kinds
from remat_gen.capture.units.unit_step import EagerParts
from remat_gen.capture.values.held import Held, kept_as_it_is
from remat_gen.ir.errors import TraceError
from remat_gen.units.own_step import own_step, run_forward
from remat_gen.units.varying_arguments import note_varying
from remat_gen.verification.step import KeptScalars, backward_step, forward_step, leaves_of

Keeps: TypeAlias = Mapping[str, Keeping] | None

_TIMED = 3  # steps; of each part the quickest counts
_SEEDS = 64  # of steps that are tried where units are left out at random


def record_calls(
    loaded: Loaded, patterns: tuple[str, ...], dtype: str = "", *, static: bool = False
) -> Examples:
    """Run forward, and note how each unit is called; where FSDP2 lets it compute in a `dtype`, so.

    Where random numbers decide which units are called, it is a step that calls all of them. Unless
    it is to be `static`, a step of a smaller batch tells what varies with that.

    Raises:
        UsageError: a pattern names no unit.
        UnfitUnitError: no step calls one.
        TraceError: forward fails.
    """
    units = find_units(loaded.model, patterns)
    before = {path: Held.by(unit, {}) for path, unit in units.items()}
    with own_step(loaded) as own, computing_in(own, units, dtype) as model:
        for seed in range(_SEEDS):
            examples = Examples(patterns, units, seed, before)
            notes = examples.note, examples.note_returned
            run = BoundaryRun(units, _unmarked, *notes)
            with context_of(model):
                examples.outside |= settings(loaded.device.type)
            examples.settle(run_forward(examples, run, model, loaded.args, loaded.kwargs))
            idle = [path for path in units if path not in examples.by_path]
            if not idle:
                break
        else:
            where = "where nothing is recorded for backward, as in a reentrant checkpoint"
            how = f"called {where}" if idle[0] in run.without_gradient else "not called in a step"
            raise UnfitUnitError(f"--units: {idle[0]} is {how}; leave that out", idle[0])
    _refuse_cast_together(loaded, examples)
    if not static:
        note_varying(loaded, examples, dtype)
    return examples


def _refuse_cast_together(loaded: Loaded, examples: Examples) -> None:
    """Refuse units whose weights eager casts once for several calls, and sums gradients of so."""
    autocast = autocast_of(loaded.model)
    if autocast is None or not autocast.cached:
        return
    paths: dict[int, list[str]] = {}
    for path in examples.calls:
        for parameter in set(examples.units[path].parameters()):
            if parameter.requires_grad and parameter.dtype == torch.float32:
                paths.setdefault(id(parameter), []).append(path)
    for several in paths.values():
        if len(several) > 1:
            raise UnfitUnitError(
                f"--units: autocast casts weights of {several[0]} once for {len(several)} calls in "
                f"a step, and sums their gradients in {str(autocast.dtype).removeprefix('torch.')};"
                " a planned unit would for each call: let step_context() return "
                "torch.autocast(…, cache_enabled=False), or plan without --units",
                *several,
            )


def kept_by_units(loaded: Loaded, examples: Examples, kinds: Kinds, dtype: str = "") -> Keeps:
    """Return what planned units keep on themselves, by their paths; None where no unit does.

    Raises:
        UnfitUnitError: they keep more, and the step is another one where they do not.
        TraceError: one that keeps something cannot be traced.
    """
    if not examples.keeps:
        return None
    keeps = {path: kind.keeping for kind in kinds.of(examples) for path in kind.paths}

    def outputs(keeps: Keeps) -> list[object]:
        units = examples.units
        again = Examples(examples.patterns, units, examples.seed, examples.before)
        with own_step(loaded) as own, computing_in(own, units, dtype) as model, kept_as_it_is(own):
            notes = again.note, again.note_returned
            run = BoundaryRun(units, _unmarked, *notes, keeps=keeps)
            args, kwargs = copy.deepcopy((loaded.args, loaded.kwargs))  # it may write into them
            return list(leaves_of(run_forward(again, run, model, args, kwargs)))

    whole = outputs(None)
    try:
        same = all(map(_is_same, whole, outputs(keeps)))
    except TraceError:
        same = False
    if not same:
        kept = [(path, name) for path, names in examples.keeps.items() for name in names]
        lost = [(path, name) for path, name in kept if name not in keeps[path].tensors] or kept
        path, name = lost[0]
        raise UnfitUnitError(
            f"--units: {path} keeps {path}.{name}, which the model reads outside of that unit, and "
            "a planned unit keeps small tensors alone: let it return that, or name what is around "
            "both",
            *dict.fromkeys(path for path, _ in lost),
        )
    return keeps


def _is_same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return is_bitwise_equal(one, other)
    return repr(one) == repr(other)


def measure_eager_parts(
    loaded: Loaded, examples: Examples, keeps: Keeps, sharding: Sharding = NOT_SHARDED
) -> EagerParts:
    """Run whole steps, and measure what is allocated between the units, and what it takes.

    Units that keep something leave no more than `keeps`. With a `sharding` it is the step of a
    model that FSDP2 shards.

    Raises:
        UnfitUnitError: no gradient goes through a unit.
        TraceError: backward does not run the units in reverse order.
    """

    def step(inside: Inside, turning: Inside = _unmarked) -> BoundaryRun:
        units = {path: model.get_submodule(path) for path in examples.units}
        run = BoundaryRun(units, inside, keeps=keeps)
        seed_all(examples.seed)
        with run.installed():
            kept = KeptScalars(model)
            outputs = forward_step(model, loaded.args, loaded.kwargs)
            run.shared_bytes = bytes_read(leaves_of(outputs), parameters)
            with turning("turn"):
                pass
            backward_step(outputs, model, loaded.args, loaded.kwargs, kept=kept)
        return run

    device = loaded.device
    with own_step(loaded) as own, as_used(own, examples.units, sharding, device) as model:
        units = map(model.get_submodule, examples.units)
        parameters = {p for unit in units for p in unit.parameters()}
        first = step(_unmarked)
        _refuse_other_order(first, examples)
        times = [times_between(step, device) for _ in range(_TIMED)]
        between = between_units(step, device)
        turn, _ = between_units(partial(step, _unmarked), device)
    # a gradient of those that eager reads, too, waits for the others: it may be there in backward
    waits = [first.shared_bytes * (i >= first.calls) for i in range(len(between))]
    return EagerParts(
        held_bytes=tuple(
            max(0, b.before_bytes) + w for b, w in zip(between, waits[:-1], strict=False)
        ),
        highest_bytes=tuple(
            max(0, b.highest_bytes) + w for b, w in zip(between, waits, strict=True)
        ),
        times_us=tuple(map(min, zip(*times, strict=True))),
        turn_bytes=max(0, turn.before_bytes),
        sharded=bool(sharding),
        incoming=tuple(first.incoming[call] for call in range(first.calls)),
    )


def _unmarked(_: object) -> AbstractContextManager[None]:
    return contextlib.nullcontext()


def _refuse_other_order(run: BoundaryRun, examples: Examples) -> None:
    n = run.calls
    if n != len(examples.calls):
        raise UnfitUnitError(
            "--units: one step calls more units than another of the same seed, by what forward "
            "counts, say: name units that each step calls",
            *examples.units,
        )
    expected = [Phase(i, False) for i in range(n)] + [Phase(i, True) for i in reversed(range(n))]
    if run.phases == expected:
        return
    went = {phase.call for phase in run.phases if phase.backward}
    idle = [examples.calls[i] for i in range(n) if i not in went]
    if idle:
        words = f"{', '.join(idle)}; name the others, or --units auto"
        raise UnfitUnitError(f"--units: no gradient goes through {words}", idle[0])
    raise TraceError("--units: backward does not run the units in the reverse order of forward")
