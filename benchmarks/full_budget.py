"""At a budget of 100 % nothing is re-run; time the generated step against eager's, in pairs.

python benchmarks/full_budget.py [PAIRS] > benchmarks/results/full_budget.md
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
from planned import EXAMPLES, ROOT, plan, print_table, scratch

from remat_gen.capture.load import load
from remat_gen.pace import TimeRatio, time_ratio
from remat_gen.step import training_step

HEAD = ("example", "re-run", "ratio, median", "95 % interval", "pairs")


def ratio(source: Path, generated: Path, pairs: int) -> TimeRatio:
    """Return the step time of the generated model over the original's."""
    original, planned = load(source), load(generated)
    return time_ratio(
        lambda: training_step(original.model, original.args, original.kwargs),
        lambda: training_step(planned.model, original.args, original.kwargs),
        torch.device("cpu"),
        pairs,
    )


def main() -> None:
    """Print the table."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    rows = []
    for name in EXAMPLES:
        with scratch("full") as folder:
            source = Path(shutil.copy(ROOT / "examples" / f"{name}.py", folder))
            planned = plan(source, "100%")
            if planned.output is None:
                raise ValueError("a module was asked for")
            found = ratio(source, planned.output, pairs)
        interval = f"{found.low:.3f} to {found.high:.3f}"
        reruns = str(planned.plan.predicted.reruns)
        rows.append((name, reruns, f"{found.median:.3f}", interval, str(pairs)))
    print_table(HEAD, rows)


if __name__ == "__main__":
    main()
