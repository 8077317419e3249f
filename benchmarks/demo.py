"""Plan examples/gpt.py at 60 % of its eager activation peak, and train both side by side.

    python benchmarks/demo.py [STEPS]

Both models start from the same weights and see the same batches and the same random numbers.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from remat_gen.capture.load.load import Loaded, load
from remat_gen.ir.byte_text import size
from remat_gen.ir.plan import read_plan
from remat_gen.plan.output import plan_path
from remat_gen.verification.peak import model_peak

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "demo"
STEPS = 20


@dataclass(slots=True)
class Run:
    """One of the two models in training."""

    loaded: Loaded
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, path: Path) -> Run:
        """Load a file and give its model an optimizer."""
        loaded = load(path)
        return cls(loaded, torch.optim.AdamW(loaded.model.parameters(), lr=1e-3))

    def step(self, batch: tuple[Tensor, ...], seed: int) -> None:
        """Train on one batch."""
        torch.manual_seed(seed)
        start = time.perf_counter()
        self.optimizer.zero_grad()
        loss, _ = self.loaded.model(*batch)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        self.seconds.append(time.perf_counter() - start)

    def peak_bytes(self) -> int:
        """Measure the activation peak of a step."""
        loaded = self.loaded
        return model_peak(loaded.model, loaded.args, loaded.kwargs, loaded.device).peak_bytes


def main() -> None:
    """Generate, train, print."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    source, output = FOLDER / "gpt.py", FOLDER / "gpt_remat.py"
    FOLDER.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "examples" / "gpt.py", source)
    command = [sys.executable, "-m", "remat_gen.cli.app", str(source), "--budget", "60%"]
    if subprocess.run([*command, "-o", str(output)], check=False).returncode:
        sys.exit(1)
    eager, planned = Run.of(source), Run.of(output)
    planned.loaded.model.load_state_dict(eager.loaded.model.state_dict())
    train(eager, planned, steps)
    report(eager, planned, output)


def train(eager: Run, planned: Run, steps: int) -> None:
    """Train both, step by step, each on the same batches."""
    for step in range(steps):
        torch.manual_seed(1000 + step)
        batch = example(eager.loaded)
        eager.step(batch, step)
        planned.step(batch, step)


def example(loaded: Loaded) -> tuple[Tensor, ...]:
    """Make a batch that can be learnt: each token follows from the one before it."""
    ids, _ = loaded.args
    rows = torch.arange(ids.shape[1] + 1, device=ids.device).expand(ids.shape[0], -1)
    start = torch.randint(64, (ids.shape[0], 1), device=ids.device)
    tokens = (start + 7 * rows) % 64
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def report(eager: Run, planned: Run, output: Path) -> None:
    """Print the table."""
    predicted = read_plan(plan_path(output)).predicted
    table = Table("", "eager", "gpt_remat.py", title="examples/gpt.py at 60 % of its eager peak")
    for step in sorted({0, len(eager.losses) // 2, len(eager.losses) - 1}):
        table.add_row(
            f"loss, step {step + 1}", f"{eager.losses[step]:.6f}", f"{planned.losses[step]:.6f}"
        )
    same = sum(a == b for a, b in zip(eager.losses, planned.losses, strict=True))
    table.add_row("losses equal to the bit", "", f"{same} of {len(eager.losses)}")
    table.add_row(
        "activation peak, predicted",
        size(predicted.eager_peak_bytes),
        size(predicted.peak_bytes),
    )
    table.add_row("activation peak, measured", size(eager.peak_bytes()), size(planned.peak_bytes()))
    times = [1000 * statistics.median(run.seconds) for run in (eager, planned)]
    table.add_row("step time, median", *(f"{time_ms:.0f} ms" for time_ms in times))
    ratio = statistics.median(b / a for a, b in zip(eager.seconds, planned.seconds, strict=True))
    table.add_row("step time, paired ratio", "1.000", f"{ratio:.3f}")
    console = Console()
    console.print(table)
    console.print(f"The generated file: {os.path.relpath(output)}")


if __name__ == "__main__":
    main()
