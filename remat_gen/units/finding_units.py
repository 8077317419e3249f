"""Find the units of a model by themselves: look at forward, then try to trace what is worth it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from torch import nn

from remat_gen.capture.load.load import Loaded
from remat_gen.capture.load.step_context import context_of
from remat_gen.capture.process.generators import seed_all
from remat_gen.capture.units.boundary import UnfitUnitError
from remat_gen.capture.units.chosen_units import Choice, patterns_of
from remat_gen.capture.units.sharding import NOT_SHARDED, Sharding
from remat_gen.capture.units.unit_kinds import Examples, Kinds
from remat_gen.capture.units.unit_step import UnitStep, unit_step
from remat_gen.capture.units.watched_modules import Watched
from remat_gen.capture.values.held import kept_as_it_is
from remat_gen.ir.errors import RematError, TraceError, UsageError
from remat_gen.units.boundary_steps import kept_by_units, measure_eager_parts, record_calls
from remat_gen.units.own_step import own_step

AUTO = "auto"
_RUNS = 3  # with the model's weights, then with others
_ENOUGH = 0.1  # of what the model's modules keep for backward, by all units
_TRIED = 3  # patterns, for a word on whether units would do
_ROUNDS = 2  # of such: what is in refused layers may do


def trace_found_units(
    loaded: Loaded, computed: Loaded, *, static: bool, sharding: Sharding = NOT_SHARDED
) -> UnitStep:
    """Find units, trace them, and measure what lies between them, as `trace_units` does.

    `computed` is the model as it computes: with its parameters cast, where FSDP2 does that.

    Raises:
        UsageError: nothing is worth it, or can be traced.
        TraceError: the model's own step fails.
    """
    choice, kinds = Choice(loaded.model, watch(loaded)), Kinds(computed, static)
    last: TraceError | None = None
    while choice.share(paths := choice.paths) >= _ENOUGH:
        try:
            patterns, dtype = patterns_of(loaded.model, paths), sharding.parameters
            examples = record_calls(computed, patterns, dtype, static=static)
            refused = list(_refused(kinds, choice, examples))
            last = refused[-1] if refused else last
            if not refused:
                keeps = kept_by_units(computed, examples, kinds, dtype)
                eager = measure_eager_parts(loaded, examples, keeps, sharding)
                return unit_step(computed, examples, eager, kinds)
        except UnfitUnitError as error:
            choice.idle.update(error.paths)
            last = error
    why = "; layers have to be nn.Modules that the model calls"
    if choice.varying:
        why = f"; {choice.varying[0]} is called with other sizes or values from call to call"
    if last:  # but for what to name instead
        why = f": {str(last).removeprefix('--units: ').partition('; ')[0]}"
    raise UsageError(
        f"--units auto: no submodule that keeps much for backward can be planned{why}"
    ) from last


def _refused(kinds: Kinds, choice: Choice, examples: Examples) -> Iterator[TraceError]:
    """Trace what was chosen; yield the refusals, and let the choice know of them."""
    for path, example in examples.by_path.items():
        try:
            kinds.add(examples.units[path], example)
        except TraceError as error:
            choice.refused.add(path)
            yield error


def units_that_would_do(loaded: Loaded) -> str:
    """Say which units can be planned where the whole model cannot; "" where none was found.

    Only the patterns that are worth most are tried, then those of what is in them.
    """
    try:
        choice, kinds = Choice(loaded.model, watch(loaded)), Kinds(loaded, static=True)
        tried = (_planned_alone(loaded, choice, kinds) for _ in range(_ROUNDS))
        return next(filter(None, tried), "")
    except RematError:
        return ""


def _planned_alone(loaded: Loaded, choice: Choice, kinds: Kinds) -> str:
    """Say which of the patterns can be planned, "" where none can; the choice knows of those."""
    for pattern, paths in list(choice.by_pattern(choice.paths).items())[:_TRIED]:
        examples = record_calls(loaded, tuple(paths), static=True)
        try:
            kinds.add(examples.units[paths[0]], examples.by_path[paths[0]])
            kept_by_units(loaded, examples, kinds)
        except TraceError:
            choice.refused.update(paths)
            continue
        return f"{pattern}, {100 * choice.share(paths):.0f}% of what modules keep for backward"
    return ""


def watch(loaded: Loaded) -> list[Watched]:
    """Run forward with the model's weights, then with others; tell what its modules do.

    Raises:
        TraceError: the model's own forward fails with its own weights.
    """
    with own_step(loaded) as model, kept_as_it_is(model):
        seen = [_watched(loaded, model, 0)]
        for seed in range(1, _RUNS):
            with suppress(Exception), _other_weights(model, seed):  # the user's code may check them
                seen.append(_watched(loaded, model, seed))
    return seen


def _watched(loaded: Loaded, model: nn.Module, seed: int) -> Watched:
    seed_all(seed)
    watched = Watched(model)
    with watched.installed(), context_of(model):
        model(*loaded.args, **loaded.kwargs)
    return watched


@contextmanager
def _other_weights(model: nn.Module, seed: int) -> Iterator[None]:
    """Turn the signs of about half of all weights, for a while: routing goes other ways."""
    own = torch.Generator().manual_seed(seed)
    weights = [p for p in model.parameters() if p.ndim > 1 and p.is_floating_point()]
    signs = [1 - 2 * torch.randint(2, p.shape, generator=own) for p in weights]

    def turn() -> None:
        with torch.no_grad():
            for weight, sign in zip(weights, signs, strict=True):
                weight.mul_(sign.to(weight))

    turn()
    try:
        yield
    finally:
        turn()
