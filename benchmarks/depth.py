"""How long the whole command takes for examples/gpt.py with 12, 24 and 48 layers, stage by stage.

python benchmarks/depth.py > benchmarks/results/depth.md
"""

from __future__ import annotations

import sys

from planned import ROOT, plan, print_table, scratch

STAGES = ("load", "trace", "profile", "solve", "emit")


def main() -> None:
    """Print the table, in seconds."""
    depths = [int(word) for word in sys.argv[1:]] or [12, 24, 48]
    text = (ROOT / "examples" / "gpt.py").read_text(encoding="utf-8")
    rows = []
    for depth in depths:
        with scratch("depth") as folder:
            source = folder / "gpt.py"
            source.write_text(text.replace("LAYERS = 4", f"LAYERS = {depth}"), encoding="utf-8")
            made = plan(source, "60%")
        seconds = [made.seconds[stage] for stage in STAGES]
        overhead = made.plan.predicted.time_us / made.plan.predicted.eager_time_us
        cells = [f"{s:.1f}" for s in (*seconds, sum(seconds))]
        rows.append((str(depth), *cells, f"{overhead:.3f}"))
    print_table(("layers", *STAGES, "all", "time at 60 %"), rows)


if __name__ == "__main__":
    main()
