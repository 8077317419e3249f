"""DistributedDataParallel with two processes: the gradients are those of eager's DDP, bitwise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed
from pairs import Pair

WORKER = Path(__file__).with_name("ddp_worker.py")


@pytest.mark.alone  # has two processes itself
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("deep", ["plain", "bucket views", "static graph"]),
        ("wide", ["plain", "static graph", "unused"]),
        ("mixed", ["unused"]),
    ],
)
def test_gradients_are_those_of_eagers_ddp(
    name: str, ways: list[str], request: pytest.FixtureRequest
) -> None:
    pair: Pair = request.getfixturevalue(name)
    folder = Path(str(pair.original.__file__)).parent
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(folder), str(rank), *ways],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [worker.communicate(timeout=120)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(errors)
