"""Run the examples on a GPU at several budgets, each step in turn with eager's.

    python benchmarks/on_gpu.py [EXAMPLE…] [--pairs N] [--out FOLDER]

An example is a name or a file. For each example and budget: the peak that was predicted and
measured (the allocator's requested bytes, and what `max_memory_allocated` counts), and the step
time as the median of paired ratios to eager with its 95 % interval. Writes cuda.json and cuda.md,
with device, versions and date.
`--device cpu` runs the same on the CPU, to try the script; it writes cpu.json and cpu.md.

The file is not called cuda.py: beside it, `import torch` would take it for NVIDIA's package.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from planned import EXAMPLES, ROOT, scratch

import remat_gen
from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.load.load import load
from remat_gen.ir.errors import InfeasibleBudgetError
from remat_gen.review.verifying import verify_file
from remat_gen.verification.paired_times import TimeRatio, time_ratio
from remat_gen.verification.step import training_step

BUDGETS = ("100%", "80%", "60%", "50%", "40%", "20%")
MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Row:
    """An example at a budget; all bytes are activation peaks, all times microseconds."""

    example: str
    budget: str
    budget_bytes: int
    predicted_bytes: int
    measured_bytes: int
    allocated_bytes: int | None
    eager_bytes: int
    eager_allocated_bytes: int | None
    predicted_ratio: float
    ratio: float
    ratio_low: float
    ratio_high: float
    eager_us: float
    reruns: int
    bitwise: bool
    ok: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """An example at a budget for which there is no schedule."""

    example: str
    budget: str
    smallest_bytes: int


def measure(source: Path, budget: str, device: str, pairs: int, effort: str) -> Row | Refused:
    """Plan an example on the device, run it beside its original, and time both in turn."""
    try:
        made = remat_gen.generate(source, budget=budget, device=device, effort=effort)
    except InfeasibleBudgetError as error:
        return Refused(source.stem, budget, error.smallest_bytes)
    assert made.output is not None
    report = verify_file(made.output)
    if report.planned_peak is None or report.original_peak is None:
        raise SystemExit(f"{source.stem} at {budget}: {report.failure or report.original_failure}")
    found, predicted = paired(source, made.output, device, pairs), made.plan.predicted
    return Row(
        example=source.stem,
        budget=budget,
        budget_bytes=made.plan.asked.budget_bytes,
        predicted_bytes=predicted.peak_bytes,
        measured_bytes=report.planned_peak.peak_bytes,
        allocated_bytes=report.planned_peak.allocated_peak_bytes,
        eager_bytes=report.original_peak.peak_bytes,
        eager_allocated_bytes=report.original_peak.allocated_peak_bytes,
        predicted_ratio=predicted.time_us / predicted.eager_time_us,
        ratio=found.median,
        ratio_low=found.low,
        ratio_high=found.high,
        eager_us=found.original_us,
        reruns=predicted.reruns,
        bitwise=report.bitwise,
        ok=report.ok,
    )


def paired(source: Path, generated: Path, device: str, pairs: int) -> TimeRatio:
    """Time a generated step and eager's in turn."""
    original, planned = load(source, device=device), load(generated, device=device)
    return time_ratio(
        lambda: training_step(original.model, original.args, original.kwargs),
        lambda: training_step(planned.model, original.args, original.kwargs),
        torch.device(device),
        pairs,
    )


def text(about: dict[str, str], rows: list[Row | Refused]) -> str:
    """Return the tables."""
    lines = [
        f"# Measured on {about['device']}",
        "",
        "; ".join(f"{name} {value}" for name, value in about.items() if name != "device"),
        "",
        "| example | budget | predicted | measured | allocated | eager | time | predicted |"
        " reruns | equal |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    return "\n".join([*lines, *map(line, rows)]) + "\n"


def line(row: Row | Refused) -> str:
    if isinstance(row, Refused):
        needed = f"needs {row.smallest_bytes / MIB:.1f} MiB"
        return f"| {row.example} | {row.budget} | {needed} | | | | | | | |"
    allocated = f"{row.allocated_bytes / MIB:.1f} MiB" if row.allocated_bytes is not None else ""
    equal = "bitwise" if row.bitwise else "within tolerance" if row.ok else "NO"
    cells = (
        row.example,
        f"{row.budget} ({row.budget_bytes / MIB:.1f} MiB)",
        f"{row.predicted_bytes / MIB:.1f} MiB",
        f"{row.measured_bytes / MIB:.1f} MiB",
        allocated,
        f"{row.eager_bytes / MIB:.1f} MiB",
        f"× {row.ratio:.3f} ({row.ratio_low:.3f} to {row.ratio_high:.3f})",
        f"× {row.predicted_ratio:.3f}",
        str(row.reruns),
        equal,
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure, and write the files after each example."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("examples", nargs="*", default=EXAMPLES)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--budgets", default=",".join(BUDGETS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    asked = parser.parse_args()
    about = {
        "device": kind_of(asked.device).name(torch.device(asked.device)),
        "torch": str(torch.__version__),
        "CUDA": str(torch.version.cuda),
        "remat-gen": remat_gen.__version__,
        "date": datetime.date.today().isoformat(),
        "pairs": str(asked.pairs),
    }
    rows: list[Row | Refused] = []
    for name in asked.examples:
        with scratch("on_gpu") as folder:
            given = Path(name) if name.endswith(".py") else ROOT / "examples" / f"{name}.py"
            source = Path(shutil.copy(given, folder))
            for budget in asked.budgets.split(","):
                rows.append(measure(source, budget, asked.device, asked.pairs, asked.effort))
                print(line(rows[-1]), flush=True)
        asked.out.mkdir(parents=True, exist_ok=True)
        stem = asked.out / asked.device
        content = {"about": about, "rows": [asdict(row) for row in rows]}
        stem.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
        stem.with_suffix(".md").write_text(text(about, rows))


if __name__ == "__main__":
    main()
