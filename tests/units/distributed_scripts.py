"""Runs the scripts of examples/distributed in two gloo processes, as torchrun does."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

from planned_units import free_port
from torch import multiprocessing as mp

SCRIPTS = Path(__file__).parents[2] / "examples" / "distributed"


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """A script, the module that it trains, and the schedule where it is a pipeline."""

    script: str
    module: str
    schedule: str = ""


def copied(folder: Path) -> Path:
    """Copy the scripts to where modules are planned."""
    made = folder / "distributed"
    shutil.copytree(SCRIPTS, made, ignore=shutil.ignore_patterns("__pycache__"))
    return made


def last_lines(folder: Path, runs: list[ScriptRun]) -> list[dict[ScriptRun, str]]:
    """Run scripts, one after another in each of two processes; return what each one said last."""
    ports = [free_port() for _ in runs]
    mp.spawn(_run_all, (str(folder), runs, ports), nprocs=2)
    said = [(folder / f"{rank}.txt").read_text().splitlines() for rank in range(2)]
    return [dict(zip(runs, lines, strict=True)) for lines in said]


def _run_all(rank: int, folder: str, runs: list[ScriptRun], ports: list[int]) -> None:
    sys.path.insert(0, folder)
    lines = []
    for run, port in zip(runs, ports, strict=True):
        with _as_torchrun(rank, port, run), contextlib.redirect_stdout(io.StringIO()) as said:
            runpy.run_path(str(Path(folder, run.script)), run_name="__main__")
        lines.append(said.getvalue().strip().splitlines()[-1])
    Path(folder, f"{rank}.txt").write_text("\n".join(lines))


@contextlib.contextmanager
def _as_torchrun(rank: int, port: int, run: ScriptRun) -> Iterator[None]:
    """Set what a new process would find; what accelerate leaves in this one goes."""
    told = {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"}
    told |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    told |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "none"}
    sys.argv = [run.script, run.module]
    with mock.patch.dict(os.environ, told | {"SCHEDULE": run.schedule}):
        yield
    if find_spec("accelerate"):
        from accelerate.state import AcceleratorState, GradientState

        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()
