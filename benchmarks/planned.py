"""What the benchmark scripts share: plan a file into a scratch folder, print a table."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from remat_gen.ask.budget import parse_budget
from remat_gen.ask.request import Request, Strategy
from remat_gen.plan.pipeline import Generated, generate
from remat_gen.terminal.progress import Progress

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ("gpt", "resnet", "unet", "transformer", "hf_llama")


def plan(source: Path, budget: str, strategy: str = "auto", *, compiled: bool = False) -> Generated:
    """Generate a module beside its source; costs of an earlier plan there are used again."""
    output = source.with_name(f"{source.stem}_remat.py")
    limit, how = parse_budget(budget), Strategy(strategy)
    asked = Request(source, limit, output, strategy=how, compiled=compiled, device="cpu")
    return generate(asked, Progress())


@contextlib.contextmanager
def scratch(name: str) -> Iterator[Path]:
    """Yield an empty folder under build/, and remove it again."""
    folder = ROOT / "build" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, ["-" * w for w in widths], *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(f"| {' | '.join(cells)} |")
