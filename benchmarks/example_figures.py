"""Generate and verify each example at 80, 60 and 40 % of its eager activation peak.

python benchmarks/example_figures.py > benchmarks/results/example_figures.md
"""

from __future__ import annotations

import shutil
from pathlib import Path

from planned import EXAMPLES, ROOT, plan, print_table, scratch

from remat_gen.codegen.sizes import size
from remat_gen.existing import verify_file

BUDGETS = ("80%", "60%", "40%")
HEAD = ("example", "budget", "bytes", "predicted", "measured", "off by", "re-run", "time", "equal")


def row(source: Path, budget: str) -> tuple[str, ...]:
    """Return a line of the table; `time` is the replayed time over that of nothing re-run."""
    planned = plan(source, budget)
    if planned.output is None:
        raise ValueError("a module was asked for")
    report = verify_file(planned.output)
    predicted = planned.plan.predicted
    measured = report.planned_peak.peak_bytes if report.planned_peak else 0
    return (
        source.stem,
        budget,
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
    for name in EXAMPLES:
        with scratch("figures") as folder:
            source = Path(shutil.copy(ROOT / "examples" / f"{name}.py", folder))
            rows += [row(source, budget) for budget in BUDGETS]
    print_table(HEAD, rows)


if __name__ == "__main__":
    main()
