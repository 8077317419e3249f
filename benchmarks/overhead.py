"""What the generated code costs by itself: launch-bound models at 100 %, where nothing is re-run.

    python benchmarks/overhead.py [ROUNDS] > benchmarks/results/overhead.md

Small batches, so that Python and dispatch are much of a step. Beside the paired ratio of times
stand counts that no other process can disturb: Python functions and built-ins called in a step,
and operators dispatched, views among them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from bench.models import Case, case_of
from planned import plan, print_table, scratch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from remat_gen.capture.load.load import Loaded, load
from remat_gen.capture.profile.timing import median_time_us
from remat_gen.verification.paired_times import time_ratio
from remat_gen.verification.step import leaves_of

ROUNDS = 100
CPU = torch.device("cpu")
PREAMBLE = """# What the generated code costs by itself

Budget 100 %: nothing is re-run. *Time*: generated over eager's step, the median of pairs in turn,
and its 95 % interval. *Calls*: Python functions and built-ins called in a step, eager's and the
generated one's; *operators*: what reaches a backend's kernels or makes a view, likewise. *Same
model*: how long the generated forward looks whether the model is still the one that was
planned, and its share of eager's step.
"""
HEAD = ("model", "eager, ms", "time", "95 % interval", "calls", "operators", "same model")
CASES = (
    (
        "ResNet-18, 2 × 32²",
        "resnet18",
        (("BATCH, IMAGE, CLASSES = 8, 128", "BATCH, IMAGE, CLASSES = 2, 32"),),
    ),
    ("GPT, 12 layers, 1 × 128", "gpt", (("LAYERS = 4", "LAYERS = 12"), ("BATCH = 8", "BATCH = 1"))),
)


@dataclass(slots=True)
class Calls:
    """Counts calls of Python functions and of built-ins."""

    count: int = 0

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        self.count += event in ("call", "c_call")


class Operators(TorchDispatchMode):
    """Counts operators below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def calls_of(step: Callable[[], object]) -> int:
    """Return how many functions a step calls."""
    counter = Calls()
    sys.setprofile(counter)
    try:
        step()
    finally:
        sys.setprofile(None)
    return counter.count


def operators_of(step: Callable[[], object]) -> int:
    """Return how many operators a step dispatches."""
    with Operators() as operators:
        step()
    return operators.count


def looked_at(planned: Loaded) -> object:
    """Compare the model as the generated forward does once it has seen it."""
    module: Any = planned.module
    return module.check_model(planned.model)


def step(model: nn.Module, given: Loaded) -> object:
    """Run forward and the loss's backward; the loss is the first that these models return."""
    outputs = model(*given.args, **given.kwargs)
    next(leaves_of(outputs)).backward()
    return outputs


def row(name: str, source: Path, rounds: int) -> tuple[str, ...]:
    """Return a line of the table."""
    made = plan(source, "100%")
    assert made.output is not None
    original, planned = load(source, device="cpu"), load(made.output, device="cpu")
    steps = [lambda: step(original.model, original), lambda: step(planned.model, original)]
    found = time_ratio(steps[0], steps[1], CPU, rounds)
    look = median_time_us(lambda: looked_at(planned), CPU)
    return (
        name,
        f"{found.original_us / 1000:.1f}",
        f"{found.median:.3f}",
        f"{found.low:.3f} to {found.high:.3f}",
        " / ".join(str(calls_of(step)) for step in steps),
        " / ".join(str(operators_of(step)) for step in steps),
        f"{look:.0f} µs, {look / found.original_us:.1%}",
    )


def main() -> None:
    """Print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    rows = []
    for name, case, changes in CASES:
        with scratch("overhead") as folder:
            source = Case(case, case_of(case).file, changes).write(folder)
            rows.append(row(name, source, rounds))
    print(PREAMBLE)
    print_table(HEAD, rows)


if __name__ == "__main__":
    main()
