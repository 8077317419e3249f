"""Everything that a first run on a GPU is to find out, in stages that stand alone.

    python benchmarks/gpu/first_run.py [STAGE …] [--out FOLDER] [--wheels FOLDER] [--small]

`nox -s gpu` is the same. Each stage is a process with a time limit of at most nine minutes; it
writes FOLDER/STAGE.log and FOLDER/STAGE.json, and one that fails does not stop the next. Without
names, all stages run in their order; `--list` names them. `--wheels` installs what the folder holds
for this run alone, without a network. `--small` is the rehearsal, of small models and few repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from stages import STAGES, Place, Stage, environment

ROOT = Path(__file__).resolve().parents[2]
_NO_STAGE = 2  # exit code


def run(stage: Stage, place: Place) -> bool:
    """Run a stage and write down what it found; say whether all of it went well."""
    log = place.out / f"{stage.name}.log"
    start = time.monotonic()
    with open(log, "w", encoding="utf-8") as to:
        codes = list(_codes(stage, place, to.fileno()))
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    found = {
        "stage": stage.name,
        "commands": stage.commands(place),
        "codes": codes,
        "seconds": round(time.monotonic() - start, 1),
        "found": list(_objects(lines)),
    }
    (place.out / f"{stage.name}.json").write_text(json.dumps(found, indent=1) + "\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    told = "ok" if not any(codes) else f"FAILED {codes}"
    print(f"{stage.name:<22} {told:<14} {found['seconds']:>6} s  {last[:100]}", flush=True)
    return not any(codes)


def _codes(stage: Stage, place: Place, to: int) -> Iterator[int]:
    """Run a stage's commands up to the first that fails, and yield their exit codes."""
    for words in stage.commands(place):
        yield (code := _code(words, stage, place, to))
        if code:
            return


def _code(words: list[str], stage: Stage, place: Place, to: int) -> int:
    """Run a command to its end or to the stage's limit; returns its exit code, 124 at the limit."""
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        env=environment(place) | stage.variables,
        stdin=subprocess.DEVNULL,
        stdout=to,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return process.wait(stage.limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return 124


def _objects(lines: list[str]) -> Iterator[object]:
    """Yield what a stage printed as JSON, an object a line."""
    for line in lines:
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError:
                continue


def install(wheels: Path, place: Place) -> None:
    """Put wheels into a folder of the run's own: no network, no change to the machine."""
    found = [str(path) for path in sorted(wheels.glob("*.whl"))]
    options = ["--quiet", "--no-index", "--no-deps", "--upgrade", "--target", str(place.site)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *found], check=True)


def main() -> int:
    """Run what was asked for; returns 1 if a stage failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("stages", nargs="*")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    if unknown := set(asked.stages) - STAGES.keys():
        print(f"no stage is called {', '.join(sorted(unknown))}: known are {', '.join(STAGES)}")
        return _NO_STAGE
    chosen = [STAGES[name] for name in asked.stages or STAGES]
    if asked.list:
        print("\n".join(f"{s.name:<22} {s.limit_s:>4} s  {s.about}" for s in chosen))
        return 0
    place = Place(asked.out.resolve(), asked.small)
    place.work.mkdir(parents=True, exist_ok=True)
    if asked.wheels:
        install(asked.wheels, place)
    return int(not all([run(stage, place) for stage in chosen]))


if __name__ == "__main__":
    sys.exit(main())
