"""Capture the steps of planned models as CUDA graphs: equal to uncaptured ones, and how quick?

    python benchmarks/gpu/graphs.py FILE …

Prints an object a file: whether a replayed step leaves what the step itself leaves, for eager and
planned, without and with `--captured`, and the four of them timed in turn, in microseconds.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from each_file import print_each
from torch.utils import _pytree as pytree

import remat_gen
from remat_gen.capture.load.load import Loaded, load
from remat_gen.capture.observe.outputs import is_loss
from remat_gen.verification.paired_times import interleaved_us

DEVICE = torch.device("cuda")
ROUNDS = 40


def left(loaded: Loaded, run: Callable[[], object]) -> list[torch.Tensor]:
    """Return outputs, gradients and buffers of a step that begins as all others do."""
    torch.cuda.manual_seed(3)
    loaded.model.zero_grad()
    outputs = [t.detach().clone() for t in pytree.tree_leaves(run()) if isinstance(t, torch.Tensor)]
    gradients = [p.grad.clone() for p in loaded.model.parameters() if p.grad is not None]
    return [*outputs, *gradients, torch.cuda.get_rng_state()]


def difference(some: list[torch.Tensor], others: list[torch.Tensor]) -> float | str:
    """Return by how much results differ, as a part of the largest number of each."""
    if len(some) != len(others):
        return f"{len(some)} results and {len(others)}"
    pairs = zip(some, others, strict=True)
    return max(
        float((a - b).abs().max() / b.abs().max().clamp(1e-30)) for a, b in pairs if b.numel()
    )


def steps_of(loaded: Loaded) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return a model's step, and the same captured."""

    def step(*args: torch.Tensor) -> object:
        made = loaded.model(*args, **loaded.kwargs)
        wanted = [leaf for leaf in pytree.tree_leaves(made) if leaf.requires_grad]
        losses = [leaf for leaf in wanted if is_loss(leaf)]
        torch.autograd.backward(losses or [leaf.float().square().mean() for leaf in wanted])
        return made

    captured = remat_gen.capture_step(loaded.model, step, *loaded.args)
    return lambda: step(*loaded.args), lambda: captured(*loaded.args)


def figures(source: Path) -> dict[str, object]:
    """Return the figures of a plan by the times that uncaptured steps take, and of `--captured`."""
    return {
        "uncaptured": of_plan(source, captured=False),
        "captured": of_plan(source, captured=True),
    }


def of_plan(source: Path, *, captured: bool) -> dict[str, object]:
    """Plan a model, capture eager's and the planned step, compare and time."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / f"{source.stem}_remat.py"
        made = remat_gen.generate(
            source, output=output, device="cuda", budget="60%", static=True, captured=captured
        )
        eager, planned = (load(path, device="cuda") for path in (source, output))
    planned.model.load_state_dict(eager.model.state_dict())
    steps = [*steps_of(eager), *steps_of(planned)]
    results = [
        left(of, run) for of, run in zip((eager, eager, planned, planned), steps, strict=True)
    ]
    again = left(eager, steps[0])
    predicted = made.plan.predicted
    told: dict[str, object] = {
        "reruns": predicted.reruns,
        "predicted": round(predicted.time_us / predicted.eager_time_us, 3),
        "eager from itself": difference(results[0], again),
        "eager captured from eager": difference(results[1], results[0]),
        "planned from eager": difference(results[2], results[0]),
        "planned captured from planned": difference(results[3], results[2]),
    }
    times = interleaved_us(steps, DEVICE, ROUNDS)
    names = ("eager", "eager captured", "planned", "planned captured")
    return told | {
        f"{name} us": round(statistics.median(t), 1) for name, t in zip(names, times, strict=True)
    }


def main() -> int:
    """Print the figures of each file; returns 1 if one of them failed."""
    return print_each("graphs", sys.argv[1:], figures)


if __name__ == "__main__":
    sys.exit(main())
