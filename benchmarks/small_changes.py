"""A small change of a committed model: how many lines does its generated file change, at what cost?

python benchmarks/small_changes.py [gpt resnet …]
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from planned import ROOT, print_table, scratch

from remat_gen.ask.budget import parse_budget
from remat_gen.ask.request import Request
from remat_gen.plan.pipeline import Generated, generate
from remat_gen.terminal.progress import Progress

BUDGETS = ("80%", "60%", "40%")
HEAD = ("example", "budget", "change", "kept: lines", "slower", "afresh: lines", "afresh: ratio")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the source (`old` to `new`), of the budget, or of the costs alone."""

    name: str
    old: str = ""
    new: str = ""
    more: int = 0
    reprofile: bool = False


SAME = (
    Change("costs measured again", reprofile=True),
    Change("budget + 2 points", more=2),
    Change("budget - 2 points", more=-2),
)
CHANGES = {
    "gpt": (
        Change("one more layer", "LAYERS = 4", "LAYERS = 5"),
        Change("two more", "LAYERS = 4", "LAYERS = 6"),
        Change("one fewer", "LAYERS = 4", "LAYERS = 3"),
        Change("no dropout behind the embedding", "x = self.drop(self.wte", "x = (self.wte"),
        *SAME,
    ),
    "resnet": (
        Change("one more in stage 1", "DEPTHS = (3, 3, 3)", "DEPTHS = (4, 3, 3)"),
        Change("one more in stage 2", "DEPTHS = (3, 3, 3)", "DEPTHS = (3, 4, 3)"),
        Change("one more in stage 3", "DEPTHS = (3, 3, 3)", "DEPTHS = (3, 3, 4)"),
        *SAME,
    ),
}


def rows(name: str) -> Iterator[tuple[str, ...]]:
    """Yield a row for each budget and change."""
    for budget in BUDGETS:
        with scratch("small_changes") as folder:
            source = Path(shutil.copy(ROOT / "examples" / f"{name}.py", folder))
            request = Request(source, parse_budget(budget), folder / f"{name}_remat.py")
            generate(request, Progress())
            committed = {path: path.read_text("utf-8") for path in folder.glob(f"{name}*")}
            for change in CHANGES[name]:
                for path, text in committed.items():
                    path.write_text(text, "utf-8")
                yield name, budget, change.name, *changed(request, budget, change)


def changed(request: Request, budget: str, change: Change) -> tuple[str, ...]:
    """Make a change; return what keeping costs, and planning afresh from the same costs."""
    assert request.output is not None
    text = request.model_file.read_text("utf-8")
    assert change.old in text
    request.model_file.write_text(text.replace(change.old, change.new), "utf-8")
    points = int(budget.rstrip("%")) + change.more
    asked = replace(request, limit=parse_budget(f"{points}%"))
    before = request.output.read_text("utf-8")
    kept = generate(replace(asked, reprofile=change.reprofile), Progress())
    lines = touched(request.output, before, kept)
    fresh = generate(replace(asked, fresh=True), Progress())
    slower = "-" if kept.slower is None else f"{100 * kept.slower:.2f} %"
    return lines, slower, touched(request.output, before, fresh), f"{ratio(fresh):.3f}"


def touched(output: Path, before: str, generated: Generated) -> str:
    """Return the lines that git would show as added and removed."""
    old, new = output.with_name("old.txt"), output.with_name("new.txt")
    old.write_text(before, "utf-8")
    new.write_text(generated.text, "utf-8")
    command = ["git", "diff", "--no-index", "--numstat", str(old), str(new)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return f"+{said[0]} -{said[1]}" if said else "0"


def ratio(generated: Generated) -> float:
    """Return the planned step as a multiple of eager's."""
    return generated.plan.predicted.time_us / generated.plan.predicted.eager_time_us


def main() -> None:
    """Print the table."""
    names = sys.argv[1:] or list(CHANGES)
    print_table(HEAD, [row for name in names for row in rows(name)])


if __name__ == "__main__":
    main()
