"""All strategies against each other: time and peak at several budgets; what checkmate proves.

python benchmarks/strategies.py DATA_FOLDER > benchmarks/results/strategies.md

DATA_FOLDER holds vgg16.json and unet.json, the profiled training graphs of Checkmate's evaluation.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "solver"))

from solver_problems import gpt_like

from remat_gen.bare.graph_file import parse_graph
from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.entrants import searched
from remat_gen.solver.contest.registry import STRATEGIES, entrant_for
from remat_gen.solver.contest.subject import Subject, subject_of
from remat_gen.solver.law.replay import Replay
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.published import checkmate

SHARES = (95, 90, 85, 80, 70, 60, 50, 40)
PROVED = {"vgg16": (95, 90, 85), "unet": (90, 80, 60, 50)}  # DESIGN.md, section 8
BELOW = {"vgg16": 83.0, "unet": 39.4}  # just under the floors
ABOUT = (
    "All figures are the replay's; effort normal. "
    "Seconds compare within one table: cores are shared."
)


def main() -> None:
    """Print all tables as Markdown."""
    folder = Path(sys.argv[1])
    subjects = {
        name: subject_of(parse_graph((folder / f"{name}.json").read_text())) for name in PROVED
    }
    print(f"# Strategies\n\n{ABOUT}")
    print("\n## checkmate: time over running each node once, and HiGHS' seconds\n")
    print_row("graph", "budget %", "time", "peak %", "proved", "s")
    print("|---" * 6 + "|")
    for name, subject in subjects.items():
        for share in (*PROVED[name], BELOW[name]):
            prove(name, subject, share)
    for name, subject in {**subjects, "gpt, 2 layers": subject_of(gpt_like(2))}.items():
        compare(name, subject)


def prove(name: str, subject: Subject, share: float) -> None:
    """Print what checkmate finds at a share of the plain peak."""
    begun = time.perf_counter()
    budget = int(plain(subject).peak_bytes * share / 100)
    found = searched(checkmate.search, subject.whole, budget // subject.unit)
    took = f"{time.perf_counter() - begun:.1f}"
    cells = ["–", "–"]
    if found.runs is not None:
        cells = ratios(subject, subject.judge(subject.program(found.runs))[1], 4)
    print_row(name, str(share), *cells, "yes" if found.complete else "no", took)


def compare(name: str, subject: Subject) -> None:
    """Print a row of time ratios and peaks for each strategy."""
    peak = plain(subject).peak_bytes
    print(f"\n## {name}: {len(subject.problem.operations)} operations, plain peak {peak} bytes\n")
    print("Time over running each once (peak in % of the plain one); seconds of all budgets.\n")
    print_row("strategy", *(f"{share} %" for share in SHARES), "s")
    print("|---" * (len(SHARES) + 2) + "|")
    for strategy in STRATEGIES:
        begun = time.perf_counter()
        entrant = entrant_for(strategy, subject, Effort.NORMAL)
        cells = []
        for share in SHARES:
            contest = Contest(subject, peak * share // 100)
            entrant.enter(contest)
            ratio = "–"
            if contest.best is not None:
                ratio = "{} ({})".format(*ratios(subject, contest.best.replay, 3))
            cells.append(ratio)
        print_row(strategy, *cells, f"{time.perf_counter() - begun:.1f}")


def plain(subject: Subject) -> Replay:
    """Return the figures of running everything once, in the given order."""
    return subject.judge(subject.plain())[1]


def ratios(subject: Subject, judged: Replay, digits: int) -> list[str]:
    """Return time over running everything once, and peak in % of the plain one."""
    once = plain(subject)
    share = f"{100 * judged.peak_bytes / once.peak_bytes:.1f}"
    return [f"{judged.time_us / once.time_us:.{digits}f}", share]


def print_row(*cells: str) -> None:
    """Print a row of a table at once: some take minutes."""
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
