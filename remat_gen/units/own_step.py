"""A model's own step, run to find out about it: behind it all is as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn

from remat_gen.capture.load.load import Loaded
from remat_gen.capture.process.generators import kept_generators, kept_host_generators, seed_all
from remat_gen.capture.process.operands import lack_values
from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.units.boundary import BoundaryRun
from remat_gen.capture.units.unit_kinds import Examples
from remat_gen.ir.errors import TraceError, UsageError, said
from remat_gen.verification.outcome import left_as_it_was
from remat_gen.verification.step import forward_step

_WRITTEN_OVER = "modified by an inplace operation"
_KEPT_INPUTS = (
    "; a unit keeps what it is called with until its backward, also what eager reads no more: "
    "where the model's own code writes into that behind the call, let it make a new tensor"
)


def run_forward(
    examples: Examples, run: BoundaryRun, model: nn.Module, args: Any, kwargs: Any
) -> object:
    """Run a forward from the examples' seed, the units as they were before; return its results."""
    for held in examples.before.values():
        held.put_back()
    seed_all(examples.seed)
    with run.installed():
        return forward_step(model, args, kwargs)


@contextlib.contextmanager
def own_step(loaded: Loaded) -> Iterator[nn.Module]:
    """Leave the model's state, gradients and the random streams as they were, Python's too.

    Raises:
        TraceError: the step fails, or has no values to be run with.
    """
    model = loaded.model
    if lack_values(model.state_dict(keep_vars=True).values()):
        raise TraceError(
            "units are planned by running the model's step, which has no values here: leave out "
            "--target"
        )
    try:
        generators = kept_generators(), kept_host_generators()
        with left_as_it_was(model), loaded.importable(), generators[0], generators[1], quiet():
            yield model
    except (TraceError, UsageError):
        raise
    except Exception as error:  # of the user's own code
        words = f"the model's own step fails: {type(error).__name__}: {said(error)}"
        raise TraceError(words + _KEPT_INPUTS * (_WRITTEN_OVER in words)) from error
