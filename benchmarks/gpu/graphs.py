"""Capture the steps of planned models as CUDA graphs: equal to uncaptured ones, and how quick?

    python benchmarks/gpu/graphs.py FILE …

Prints an object a file, of eager and of two plans at 60 %, one of them with `--captured`: whether a
replayed step leaves what the step itself leaves, and microseconds with gradients set to None
before each step. Captured ones are timed in turn, and the others in turn.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
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
Step = Callable[[], object]


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


def steps_of(loaded: Loaded) -> tuple[Step, Step]:
    """Return a model's step, and the same captured."""

    def step(*args: torch.Tensor) -> object:
        made = loaded.model(*args, **loaded.kwargs)
        wanted = [leaf for leaf in pytree.tree_leaves(made) if leaf.requires_grad]
        losses = [leaf for leaf in wanted if is_loss(leaf)]
        torch.autograd.backward(losses or [leaf.float().square().mean() for leaf in wanted])
        return made

    captured = remat_gen.capture_step(loaded.model, step, *loaded.args)
    return lambda: step(*loaded.args), lambda: captured(*loaded.args)


def planned(source: Path, *, captured: bool) -> tuple[Loaded, dict[str, object]]:
    """Plan a model at 60 %; return it with what was predicted."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / f"{source.stem}_remat.py"
        made = remat_gen.generate(
            source, output=output, device="cuda", budget="60%", static=True, captured=captured
        )
        found = made.plan.predicted
        times = round(found.time_us / found.eager_time_us, 3)
        return load(output, device="cuda"), {"reruns": found.reruns, "predicted": times}


def medians_us(models: Sequence[Loaded], steps: Sequence[Step]) -> list[float]:
    """Time steps in turn, each from gradients that are None."""

    def fresh(loaded: Loaded, step: Step) -> Step:
        return lambda: (loaded.model.zero_grad(), step())

    turns = [fresh(*pair) for pair in zip(models, steps, strict=True)]
    return [round(statistics.median(times), 1) for times in interleaved_us(turns, DEVICE, ROUNDS)]


def figures(source: Path) -> dict[str, object]:
    """Capture eager's step and two planned ones, compare and time."""
    eager = load(source, device="cuda")
    plans = {"planned": planned(source, captured=False), "captured": planned(source, captured=True)}
    models = [eager, *(loaded for loaded, _ in plans.values())]
    for loaded in models[1:]:
        loaded.model.load_state_dict(eager.model.state_dict())
    steps, replays = zip(*map(steps_of, models), strict=True)
    first = left(eager, steps[0])
    told: dict[str, object] = {"eager from itself": difference(left(eager, steps[0]), first)}
    times = zip(medians_us(models, steps), medians_us(models, replays), strict=True)
    names = ("eager", *plans)
    for name, loaded, step, replay, us in zip(names, models, steps, replays, times, strict=True):
        once = left(loaded, step)
        told[name] = {
            **(plans[name][1] if name in plans else {}),
            "from eager": difference(once, first),
            "captured from itself": difference(left(loaded, replay), once),
            "us": us[0],
            "captured us": us[1],
        }
    return told


def main() -> int:
    """Print the figures of each file; returns 1 if one of them failed."""
    return print_each("graphs", sys.argv[1:], figures)


if __name__ == "__main__":
    sys.exit(main())
