"""Run models that nobody here wrote through generate and verify; a stopped run is resumed.

python benchmarks/zoo/run.py [torchvision|timm|transformers|torch …]
python benchmarks/zoo/run.py units --budget 65%
python benchmarks/zoo/run.py --device cuda --share 2/8 --results FILE: one of eight runs on a GPU
python benchmarks/zoo/run.py --eager: eager's peak alone, where that is not known or predicted badly
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from lists.diffusion_packages import DIFFUSION
from lists.more_transformers_models import MORE_TRANSFORMERS
from lists.sequence_packages import SEQUENCES
from lists.timm_models import TIMM
from lists.torch_models import TORCH
from lists.torchvision_models import TORCHVISION
from lists.transformers_models import TRANSFORMERS
from lists.unit_models import UNITS
from lists.vision_packages import VISION
from record import Record, Status, append, read_records
from subject import Subject, kinds_in_turn
from table import NEAR, page
from unit_table import unit_page
from worker import Asked, Work, eager_alone, preload, run, work

_FORK = multiprocessing.get_context("fork")
ROOT = Path(__file__).resolve().parents[2]
SCRATCH = Path(tempfile.gettempdir()) / "remat-gen-zoo"
PARTS = {
    "torchvision": TORCHVISION,
    "timm": TIMM,
    "transformers": TRANSFORMERS + MORE_TRANSFORMERS,
    "torch": TORCH,
    "packages": VISION + DIFFUSION + SEQUENCES,
}
_APART = {"units": UNITS}  # planned otherwise: with records and a page of their own


@dataclass(frozen=True, slots=True)
class Run:
    """How models are run, and where their records go."""

    results: Path
    scratch: Path
    budget: str
    strategy: str
    limit_s: float
    device: str

    def one(self, subject: Subject, known: Record | None = None) -> Record:
        """Write the model's file, and run it in a process of its own; a `known` one in part."""
        folder = self.scratch / subject.library
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / subject.file_name
        source.write_text(subject.text(), encoding="utf-8")
        for old in folder.glob(f"{source.stem}_remat*"):
            old.unlink()
        blank = Record(subject.key, subject.kind, Status.FAILED, self.strategy)
        if known is None:
            return self._answer(source, blank, subject.units)
        found = self._answer(source, known, subject.units, eager_alone)
        return known if found.status is Status.TIMED_OUT else found

    def _answer(
        self, source: Path, blank: Record, units: tuple[str, ...], how: Work = run
    ) -> Record:
        """Fork a worker: it has what this process imported, and takes a crash with it."""
        ours, theirs = _FORK.Pipe(duplex=False)
        given = how, source, blank, Asked(self.budget, units, self.device), theirs
        worker = _FORK.Process(target=work, args=given)
        worker.start()
        theirs.close()
        try:
            if not ours.poll(self.limit_s):
                return _with(blank, Status.TIMED_OUT, f"not done after {self.limit_s:.0f} s")
            record: Record = ours.recv()
            return record
        except EOFError:
            worker.join()
            return _with(blank, Status.FAILED, f"the process ended with {worker.exitcode}")
        finally:
            worker.kill()
            worker.join()


def _with(blank: Record, status: Status, error: str) -> Record:
    return Record(blank.key, blank.kind, status, blank.strategy, error=error)


def wanted(parts: Iterable[str], only: str, done: dict[str, Record], again: str) -> list[Subject]:
    """Return the models that are still to run, some of each kind first."""
    names = {name for name in only.split(",") if name}
    repeated = {word for word in again.split(",") if word}

    def is_open(subject: Subject) -> bool:
        if names:
            return subject.name in names
        record = done.get(subject.key)
        return record is None or record.status in repeated or "all" in repeated

    listed = tuple(s for part in parts for s in (PARTS | _APART)[part])
    return [s for s in kinds_in_turn(listed) if is_open(s)]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", help=f"{'|'.join(PARTS)}, or units alone")
    parser.add_argument("--only", default="", help="names of models, with commas between")
    parser.add_argument("--again", default="", help="run those of a status again, or `all`")
    parser.add_argument("--budget", default="60%")
    parser.add_argument("--strategy", default="rotor", help="quick: plans are not the point")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--share", default="1/1", help="the 2nd of 8 parts of the list: 2/8")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each model")
    parser.add_argument("--results", type=Path, help="the file of the records")
    parser.add_argument("--scratch", type=Path, default=SCRATCH, help="where models are written")
    parser.add_argument("--eager", action="store_true", help="eager's peak alone: plan nothing")
    parser.add_argument("--list", action="store_true", help="print the models, and run none")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS) - ({*_APART} if len(given.parts) == 1 else set()):
        parser.error(f"{', '.join(sorted(unknown))}: no part of the zoo; known: {', '.join(PARTS)}")
    name = given.parts[0] if set(given.parts) & set(_APART) else "zoo"
    given.results = given.results or ROOT / f"benchmarks/results/{name}.jsonl"
    return given


def main() -> None:
    """Run what is wanted; print a line for each, write the table beside the records."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)  # several would not survive the fork
    given = arguments()
    parts, done = given.parts or list(PARTS), read_records(given.results)
    if given.eager:
        todo = [s for s in wanted(parts, given.only, {}, "") if _lacks_eager(done.get(s.key))]
    else:
        todo = wanted(parts, given.only, done, given.again)
    part, parts_in_all = map(int, given.share.split("/"))
    todo = todo[part - 1 :: parts_in_all]
    if given.list:
        print("\n".join(subject.key for subject in todo))
        return
    runs = Run(
        given.results, given.scratch, given.budget, given.strategy, given.limit, given.device
    )
    if todo:
        preload()
    for position, subject in enumerate(todo, start=1):
        record = runs.one(subject, done[subject.key] if given.eager else None)
        append(given.results, record)
        print(f"{position}/{len(todo)} {summary(record)}", flush=True)
        _write_page(given.results, given.device, units="units" in parts)


def _lacks_eager(record: Record | None) -> bool:
    if record is None or not record.eager_bytes:
        return False
    return record.eager_off is None or record.eager_off > NEAR


def _write_page(results: Path, device: str, *, units: bool) -> None:
    parts, write = (_APART, unit_page) if units else (PARTS, partial(page, device=device))
    listed = [subject.key for part in parts.values() for subject in part]
    records = [r for key, r in read_records(results).items() if key in listed]
    results.with_suffix(".md").write_text(write(records, len(listed)), encoding="utf-8")


def summary(record: Record) -> str:
    """Return a record in one line, for people."""
    told = record.error or f"{record.equal}, {record.share} %, off by {record.off_bytes} B"
    return f"{record.key}: {record.status}, {record.seconds:.0f} s: {told}"


if __name__ == "__main__":
    main()
