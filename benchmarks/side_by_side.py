"""Measure the generated step beside everything that could be picked instead, in one process.

    python benchmarks/side_by_side.py [MODEL…] [--budgets 100%,80%,…] [--rounds N]

A MODEL is one of the examples (all five are measured without one), gpt_4l, gpt_6l, resnet18, or the
path of a model file that imports nothing from its own folder. Beside the generated modules, those
with compiled parts last, stand eager, torch.utils.checkpoint around every layer and every second
one, selective checkpointing with the products saved, and torch.compile at several
activation_memory_budgets. Writes side_by_side.json, side_by_side.md and a picture per model; what
an earlier run found about other models stays in them.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from bench.contestants import Module, contestants
from bench.measuring import measure
from bench.models import Case, case_of
from bench.picture import write_picture_of
from bench.published import published_for
from bench.results import Result, read_results, write_results
from bench.text import page, show
from planned import EXAMPLES, ROOT, plan

from remat_gen.ir.byte_text import size
from remat_gen.ir.errors import InfeasibleBudgetError, RematError, UsageError
from remat_gen.plan.output import plan_path

BUDGETS = "100%,80%,60%,50%,40%"
COMPILED = "50%"
RATIOS = "1,0.5,0.1"
RESULTS = ROOT / "benchmarks" / "results"
BUILD = ROOT / "build" / "bench"


def main() -> None:
    """Measure, print, and write the files after each model."""
    asked = arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    for case in asked.models or [case_of(name) for name in EXAMPLES]:
        try:
            result = measured(case, asked)
        except RematError as error:
            sys.exit(str(error))
        show(result, published_for(case.name))
        keep(result, asked.out)
        picture(result, asked.out)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", type=_case)
    parser.add_argument("--budgets", default=BUDGETS, help="shares or sizes, with commas between")
    parser.add_argument("--compiled", default=COMPILED, help="budgets with --compile; '' for none")
    parser.add_argument(
        "--ratios", default=RATIOS, type=ratios, help="torch.compile's budgets; '' for none"
    )
    parser.add_argument("--rounds", type=int, default=20, help="steps of each, in turn")
    parser.add_argument("--keep-plans", action="store_true", help="of an earlier run in build/")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    return parser.parse_args()


def ratios(text: str) -> list[float]:
    """Read torch.compile's budgets, shares of what it would save.

    Raises:
        ArgumentTypeError: one is no number from 0 to 1.
    """
    try:
        found = [float(word) for word in filter(None, text.split(","))]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: write shares, as in 1,0.5") from error
    if not all(0 <= ratio <= 1 for ratio in found):
        raise argparse.ArgumentTypeError(f"{text}: shares are between 0 and 1")
    return found


def _case(word: str) -> Case:
    try:
        return case_of(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def measured(case: Case, asked: argparse.Namespace) -> Result:
    """Plan a model at each budget and measure everybody with it."""
    source = case.write(BUILD / case.name)
    modules = []
    for given, compiled in ((asked.budgets, False), (asked.compiled, True)):
        for budget in filter(None, given.split(",")):
            tell(f"{case.name}: planning at {budget}{', compiled' * compiled}")
            path = planned(source, budget, keep=asked.keep_plans, compiled=compiled)
            modules.append(Module(budget, path, compiled))
    return measure(source, contestants(source, modules, asked.ratios), asked.rounds, tell)


def planned(source: Path, budget: str, *, keep: bool, compiled: bool = False) -> Path | str:
    """Return a module within a budget in a folder of its own, or why there is none.

    All budgets of a model are planned from one measurement of its operations.
    """
    name = budget.replace("%", "_percent")
    folder = source.parent / (f"{name}_compiled" if compiled else name)
    module = folder / f"{source.stem}_remat.py"
    if keep and module.is_file():
        return module
    try:
        made = plan(source, budget, compiled=compiled)
    except InfeasibleBudgetError as error:
        return f"needs at least {size(error.smallest_bytes)}"
    assert made.output is not None
    folder.mkdir(exist_ok=True)
    for path in (source, made.output, plan_path(made.output)):
        shutil.copy(path, folder)
    return module


def keep(result: Result, folder: Path) -> None:
    """Write a result beside those that are there."""
    results = read_results(folder / "side_by_side.json") | {result.model: result}
    write_results(folder / "side_by_side.json", results)
    (folder / "side_by_side.md").write_text(page(results), encoding="utf-8")


def picture(result: Result, folder: Path) -> None:
    """Draw a model's picture; without matplotlib, say so."""
    path = folder / f"side_by_side_{result.model}.svg"
    try:
        write_picture_of(result, published_for(result.model), path)
    except UsageError as error:
        tell(str(error))


def tell(what: str) -> None:
    """Report progress."""
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
