"""Generate and verify each example at 80, 60 and 40 % of eager's measured activation peak.

python benchmarks/example_figures.py [EXAMPLE …] > benchmarks/results/example_figures.md

The budgets are given in bytes, of the peak that was measured; what plans call eager's is replayed.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
from planned import EXAMPLES, ROOT, plan, print_table, scratch

from remat_gen.capture.load.load import load
from remat_gen.ir.byte_text import size
from remat_gen.review.verifying import verify_file
from remat_gen.verification.peak import model_peak

SHARES = (80, 60, 40)
HEAD = (
    "example",
    "of eager",
    "budget",
    "predicted",
    "measured",
    "off by",
    "re-run",
    "time",
    "equal",
)


def eager_peak_bytes(source: Path) -> int:
    """Measure the original's activation peak."""
    loaded = load(source, device="cpu")
    with loaded.importable():
        cpu = torch.device("cpu")
        return model_peak(loaded.model, loaded.args, loaded.kwargs, cpu).peak_bytes


def row(source: Path, eager_bytes: int, share: int) -> tuple[str, ...]:
    """Return a line of the table; `time` is the replayed time over that of nothing re-run."""
    planned = plan(source, str(eager_bytes * share // 100))
    if planned.output is None:
        raise ValueError("a module was asked for")
    report = verify_file(planned.output)
    predicted = planned.plan.predicted
    measured = report.planned_peak.peak_bytes if report.planned_peak else 0
    return (
        source.stem,
        f"{share} %",
        size(planned.plan.asked.budget_bytes),
        size(predicted.peak_bytes),
        size(measured),
        f"{measured - predicted.peak_bytes} B",
        str(predicted.reruns),
        f"{predicted.time_us / predicted.eager_time_us:.3f}",
        "bitwise" if report.bitwise else ("within tolerance" if report.ok else "NO"),
    )


def main() -> None:
    """Print the table."""
    rows = []
    for name in sys.argv[1:] or EXAMPLES:
        with scratch(f"figures_{name}") as folder:
            source = Path(shutil.copy(ROOT / "examples" / f"{name}.py", folder))
            eager_bytes = eager_peak_bytes(source)
            rows += [row(source, eager_bytes, share) for share in SHARES]
    print_table(HEAD, rows)


if __name__ == "__main__":
    main()
