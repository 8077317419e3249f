"""The scripts of examples/distributed, by two gloo processes: what eager's model prints."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import shutil
import sys
from pathlib import Path
from unittest import mock

import pytest
from planned_units import free_port, modelled
from torch import multiprocessing as mp

import remat_gen

SCRIPTS = Path(__file__).parents[2] / "examples" / "distributed"
RUNS = {
    "DDP": ("ddp.py", ""),
    "FSDP2": ("fsdp2.py", ""),
    "GPipe": ("pipeline.py", "GPipe"),
    "1F1B": ("pipeline.py", "1F1B"),
    "Interleaved1F1B": ("pipeline.py", "Interleaved1F1B"),
}
STAGES = "1F1B", "gpt_stage{stage}_remat"


@pytest.mark.alone
def test_planned_units_train_as_eager_does(tmp_path: Path) -> None:
    folder = tmp_path / "distributed"
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    with mock.patch("remat_gen.capture.profile.profile.profile", modelled):
        made = remat_gen.generate(folder / "gpt.py", budget="60%", units=["h.*"])
        remat_gen.generate_stages(folder / "gpt.py", stages=2, micro_batches=4, budget="4MB")
    assert made.plan.predicted.reruns > 0
    runs = [STAGES, *((name, module) for name in RUNS for module in ("gpt", "gpt_remat"))]
    ports = [free_port() for _ in runs]
    mp.spawn(_run_all, (str(folder), runs, ports), nprocs=2)
    for rank in range(2):
        said = dict(zip(runs, (folder / f"{rank}.txt").read_text().splitlines(), strict=True))
        for name in RUNS:
            assert said[name, "gpt"].startswith(f"rank {rank}: losses ")
            assert said[name, "gpt_remat"] == said[name, "gpt"], name
        assert said[STAGES] == said["1F1B", "gpt"]


def _run_all(rank: int, folder: str, runs: list[tuple[str, str]], ports: list[int]) -> None:
    """Run scripts as torchrun does, one after another in this process."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    sys.path.insert(0, folder)
    lines = []
    for (name, module), port in zip(runs, ports, strict=True):
        script, schedule = RUNS[name]
        os.environ |= {"MASTER_PORT": str(port), "SCHEDULE": schedule}
        sys.argv = [script, module]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            runpy.run_path(str(Path(folder, script)), run_name="__main__")
        lines.append(said.getvalue().strip().splitlines()[-1])
    Path(folder, f"{rank}.txt").write_text("\n".join(lines))
