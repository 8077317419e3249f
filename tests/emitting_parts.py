"""What tests share that plan without measuring times, or emit without the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch

from remat_gen.capture.device.kind import Time
from remat_gen.capture.load.load import Loaded
from remat_gen.capture.profile.profile import profile
from remat_gen.capture.trace.trace import Traced
from remat_gen.codegen.module.emit_module import Target
from remat_gen.ir.costs import Costs

CPU = torch.device("cpu")


@contextmanager
def equal_times() -> Iterator[None]:
    """Let every operation that is measured warm up, and take the same time."""
    measuring = "remat_gen.capture.profile.profile"
    with (
        mock.patch(f"{measuring}.time_warm", lambda *_: Time(1.0)),
        mock.patch(f"{measuring}.time_again", lambda *_: Time(1.0)),
        mock.patch(f"{measuring}.copies_needed", lambda *_: 1),
    ):
        yield


def measured_workspace(traced: Traced) -> Costs:
    """Return costs with the workspace of each operation as it is."""
    with equal_times():
        return profile(traced.graph, CPU, traced.examples)


def target_of(loaded: Loaded, output: Path) -> Target:
    """Return what a model's module is emitted for: the CPU, at 60 % of eager's peak."""
    return Target(
        source=loaded.source,
        file_name=loaded.path.name,
        namespace=vars(loaded.module),
        model=loaded.model,
        builder=loaded.builder,
        output=output,
        command=f"remat-gen {loaded.path.name} --budget 60% -o {output.name}",
        device="cpu",
    )
