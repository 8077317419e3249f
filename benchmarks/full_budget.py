"""At a budget of 100 % nothing is re-run; time the generated step against eager's, in pairs.

python benchmarks/full_budget.py [EXAMPLE…] > benchmarks/results/full_budget.md

In several processes each: what the C library gives back to the system after a step, and has to
fetch again in the next, is another share of it in every process (0 to 14,000 pages a step of the
same U-Net), for both models, and is worth more time than what is to be measured.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import torch
from planned import EXAMPLES, ROOT, plan, print_table, scratch

from remat_gen.capture.load.load import load
from remat_gen.verification.paired_times import median_interval, time_ratio
from remat_gen.verification.step import training_step

HEAD = ("example", "re-run", "ratio, median", "95 % interval", "processes", "pairs in each")
PROCESSES, PAIRS = 12, 20
ONE = "--one"


def ratio_here(source: Path, generated: Path) -> float:
    """Return the median step time of the generated model over the original's, in this process."""
    original, planned = load(source), load(generated)
    found = time_ratio(
        lambda: training_step(original.model, original.args, original.kwargs),
        lambda: training_step(planned.model, original.args, original.kwargs),
        torch.device("cpu"),
        PAIRS,
    )
    return found.median


def ratio_elsewhere(source: Path, generated: Path) -> float:
    """Return it of a fresh process."""
    command = [sys.executable, __file__, ONE, str(source), str(generated)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def row(name: str) -> tuple[str, ...]:
    """Plan an example, and time it."""
    with scratch("full") as folder:
        source = Path(shutil.copy(ROOT / "examples" / f"{name}.py", folder))
        planned = plan(source, "100%")
        if planned.output is None:
            raise ValueError("a module was asked for")
        ratios = [ratio_elsewhere(source, planned.output) for _ in range(PROCESSES)]
    low, high = median_interval(ratios)
    median, interval = f"{statistics.median(ratios):.3f}", f"{low:.3f} to {high:.3f}"
    reruns = str(planned.plan.predicted.reruns)
    return name, reruns, median, interval, str(PROCESSES), str(PAIRS)


def main() -> None:
    """Print the table, or one process's ratio."""
    if sys.argv[1:2] == [ONE]:
        print(ratio_here(Path(sys.argv[2]), Path(sys.argv[3])))
    else:
        print_table(HEAD, [row(name) for name in sys.argv[1:] or EXAMPLES])


if __name__ == "__main__":
    main()
