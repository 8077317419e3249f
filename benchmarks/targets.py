"""Plan for GPUs that are not here: the examples on each, and a model of 70 billion parameters.

    python benchmarks/targets.py [--all]      (--all: the 70B too, some minutes)

Each plan is made in a process of its own, so that its highest resident memory is its own. Rows of
plans that were not made again stay as they are. Writes results/targets.json and results/targets.md.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
TARGETS = ("h200", "h100", "a100", "rtx4090")
EXAMPLES = ("gpt", "resnet", "unet", "transformer")
LARGE = ("target_models/llama_70b", "h200", "40%", "quick")


def main() -> None:
    if sys.argv[1:2] == ["--row"]:
        print(json.dumps(row(*sys.argv[2:])))
        return
    wanted = [(f"../examples/{e}", t, "60%", "normal") for e in EXAMPLES for t in TARGETS]
    wanted += [LARGE] * ("--all" in sys.argv)
    file = RESULTS / "targets.json"
    rows: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for names in wanted:
        made = subprocess.run(
            [sys.executable, __file__, "--row", *names], check=True, stdout=subprocess.PIPE
        )
        rows[" ".join(names)] = json.loads(made.stdout)
        print(*names, rows[" ".join(names)])
    file.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
    (RESULTS / "targets.md").write_text(text(rows))


def row(model: str, target: str, budget: str, effort: str) -> dict[str, Any]:
    """Plan a model for a target, and say what that took."""
    import remat_gen

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        made = remat_gen.generate(
            (HERE / f"{model}.py").resolve(),
            target=target,
            budget=budget,
            effort=effort,
            output=Path(folder) / f"{Path(model).name}_remat.py",
        )
    predicted = made.plan.predicted
    return {
        "operations": len(made.plan.costs),
        "eager_peak_bytes": predicted.eager_peak_bytes,
        "peak_bytes": predicted.peak_bytes,
        "time_ratio": round(predicted.time_us / predicted.eager_time_us, 4),
        "eager_ms": round(predicted.eager_time_us / 1e3, 3),
        "strategy": made.plan.solver.strategy,
        "reruns": predicted.reruns,
        "lines": made.text.count("\n"),
        "seconds": {name: round(s, 1) for name, s in made.seconds.items()},
        "total_seconds": round(time.perf_counter() - start, 1),
        "resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def text(rows: dict[str, Any]) -> str:
    """Return the table."""
    lines = [
        "# Plans for GPUs that were not there",
        "",
        "Costs are modelled from published rates; nothing was run on a GPU. Time is the planned",
        "step's as a multiple of eager's, both modelled; the last three columns are what planning",
        "took on 2 CPU cores (in all, and in the solver) and the highest resident memory. 70B is",
        "Llama 3 70B, batch 1, sequence 4096, bfloat16: 141 GB of weights.",
        "",
        "| model | target | operations | eager peak | planned peak | time | reruns | took | solve |"
        " memory |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    return "\n".join([*lines, *(line(names, found) for names, found in rows.items())]) + "\n"


def line(names: str, found: dict[str, Any]) -> str:
    model, target, budget, _ = names.split()
    mib = 1024**2
    cells = [
        Path(model).name,
        target,
        str(found["operations"]),
        f"{found['eager_peak_bytes'] / mib:,.1f} MiB",
        f"{found['peak_bytes'] / mib:,.1f} MiB ({budget})",
        f"× {found['time_ratio']:.3f}",
        str(found["reruns"]),
        f"{found['total_seconds']:.0f} s",
        f"{found['seconds'].get('solve', 0.0):.0f} s",
        f"{found['resident_bytes'] / 1e9:.1f} GB",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
