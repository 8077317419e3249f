"""How long the whole command takes for examples/gpt.py with 12, 24 and 48 layers, stage by stage.

python benchmarks/depth.py > benchmarks/results/depth.md
"""

from __future__ import annotations

import sys

from planned import ROOT, plan, print_table, scratch

from remat_gen.plan.pipeline import Generated

STAGES = ("load", "trace", "profile", "solve", "emit")
OTHERS = ("80%", "40%", "20%")


def main() -> None:
    """Print the table, in seconds."""
    depths = [int(word) for word in sys.argv[1:]] or [12, 24, 48]
    print_table(
        ("layers", *STAGES, "all at 60%", *(f"solve, {budget}" for budget in OTHERS), "found"),
        [row(depth) for depth in depths],
    )


def row(depth: int) -> tuple[str, ...]:
    """Return the line of a depth: the stages at 60 %, and solving at other budgets."""
    text = (ROOT / "examples" / "gpt.py").read_text(encoding="utf-8")
    with scratch("depth") as folder:
        source = folder / "gpt.py"
        source.write_text(text.replace("LAYERS = 4", f"LAYERS = {depth}"), encoding="utf-8")
        made = plan(source, "60%")
        seconds = [made.seconds[stage] for stage in STAGES]
        others = [plan(source, budget) for budget in OTHERS]
    found = [f"{overhead(one):.3f}{_proof(one)}" for one in (others[0], made, *others[1:])]
    cells = [*seconds, sum(seconds), *(one.seconds["solve"] for one in others)]
    return (str(depth), *(f"{s:.1f}" for s in cells), " · ".join(found))


def overhead(made: Generated) -> float:
    """Return the predicted time as a ratio to eager's."""
    return made.plan.predicted.time_us / made.plan.predicted.eager_time_us


def _proof(made: Generated) -> str:
    """Return a star where the schedule is proved optimal, else the gap to the bound."""
    if made.plan.solver.status == "optimal":
        return "*"
    return f" (bound {made.plan.solver.lower_bound_us / made.plan.predicted.eager_time_us:.3f})"


if __name__ == "__main__":
    main()
