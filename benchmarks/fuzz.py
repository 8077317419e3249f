"""Random models without end: `python benchmarks/fuzz.py --cases 5000`, resumable.

Every batch of 50 cases follows from its number. A case that fails is kept whole in
`benchmarks/results/fuzz/`; the table is `benchmarks/results/fuzz.md`.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import sys
import time
import traceback
from collections import Counter
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import TypedDict

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/codegen"), str(ROOT / "tests")]

from random_cases import Case, assert_right, cases  # noqa: E402

BATCH = 50
RESULTS = Path(__file__).parent / "results"


class Record(TypedDict):
    """A batch: how many cases, how they ended, which strategies planned them."""

    batch: int
    cases: int
    kinds: dict[str, int]
    strategies: dict[str, int]
    seconds: float


@dataclass(slots=True)
class Outcome:
    """Notes how a case ended; a class, since anything may be raised in it."""

    case: Case
    kind: str = "equal"
    error: str = ""
    frames: list[str] = field(default_factory=list)

    def __enter__(self) -> None:
        """Begin; nothing to do."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> bool:
        """Keep an error, unless a person ended the run."""
        if error is None or not isinstance(error, Exception):
            return False
        self.kind = type(error).__name__
        self.error = str(error).strip()[:400]
        self.frames = traceback.format_exception(error)[-4:]
        return True


def run_batch(number: int) -> list[Outcome]:
    """Run the cases of a batch."""
    outcomes: list[Outcome] = []

    @seed(number)
    @settings(
        max_examples=BATCH,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=cases())
    def run(case: Case) -> None:
        outcomes.append(Outcome(case))
        with outcomes[-1]:
            assert_right(case)

    run()
    return outcomes


def keep(folder: Path, number: int, outcomes: list[Outcome], seconds: float) -> None:
    """Write a batch's record, and the cases that failed."""
    failed = [
        asdict(o.case) | {"batch": number, "kind": o.kind, "error": o.error, "frames": o.frames}
        for o in outcomes
        if o.kind != "equal"
    ]
    record: Record = {
        "batch": number,
        "cases": len(outcomes),
        "kinds": dict(sorted(Counter(o.kind for o in outcomes).items())),
        "strategies": dict(sorted(Counter(o.case.strategy for o in outcomes).items())),
        "seconds": round(seconds, 1),
    }
    folder.mkdir(parents=True, exist_ok=True)
    if failed:
        (folder / f"failed_{number}.json").write_text(json.dumps(failed, indent=1) + "\n")
    with (folder / "batches.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")


def done(folder: Path) -> list[Record]:
    """Return the records of the batches that were run before."""
    file = folder / "batches.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def table(records: list[Record]) -> str:
    """Write the record of all batches."""
    kinds: Counter[str] = Counter()
    strategies: Counter[str] = Counter()
    for record in records:
        kinds.update(record["kinds"])
        strategies.update(record["strategies"])
    numbers = sorted(record["batch"] for record in records)
    return (
        "# Random models\n\n"
        f"{sum(kinds.values())} cases, batches {numbers[0]} to {numbers[-1]} of "
        f"`python benchmarks/fuzz.py` (seed: the batch's number).\n"
        f"torch {torch.__version__.partition('+')[0]}, hypothesis {version('hypothesis')}, "
        f"z3 {version('z3-solver')}, Python {platform.python_version()}, CPU.\n\n"
        + _rows("outcome", kinds)
        + "\n"
        + _rows("schedule", strategies)
    )


def _rows(title: str, counts: Counter[str]) -> str:
    lines = [f"| {title} | cases |", "|---|---:|"]
    lines += [f"| {name} | {count} |" for name, count in sorted(counts.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="number of the first batch")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    folder = arguments.out / "fuzz"
    torch.set_num_threads(1)
    ready = {record["batch"] for record in done(folder)}
    for number in range(arguments.first, arguments.first + -(-arguments.cases // BATCH)):
        if number in ready:
            continue
        start = time.perf_counter()
        outcomes = run_batch(number)
        keep(folder, number, outcomes, time.perf_counter() - start)
        gc.collect()
        gc.freeze()  # torch and what it keeps: each case collects before it measures
        (arguments.out / "fuzz.md").write_text(table(done(folder)))
        kinds = Counter(o.kind for o in outcomes)
        print(f"batch {number}: {dict(kinds)}, {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
