"""A model of the zoo from its file to the line of the table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import run
import worker
from record import Record, Status, append, read_records
from table import page

ZOO = Path(run.__file__).parent


def run_zoo(results: Path, *words: str) -> str:
    command = [sys.executable, str(ZOO / "run.py"), *words, "--results", str(results)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_recurrent_network_passes(tmp_path: Path) -> None:
    results = tmp_path / "zoo.jsonl"
    run_zoo(results, "torch", "--only", "GRU")
    (record,) = read_records(results).values()
    assert (record.status, record.error) == (Status.OK, "")
    assert abs(record.off_bytes) <= max(65536, record.measured_bytes // 100)
    assert record.measured_bytes <= record.budget_bytes
    assert "GRU" in results.with_suffix(".md").read_text()


def test_a_model_that_eager_cannot_run_is_no_failure_of_ours(tmp_path: Path) -> None:
    source = tmp_path / "broken.py"
    source.write_text(
        "import torch\nfrom torch import nn\n\n\n"
        "def build_model():\n    return nn.Linear(3, 2)\n\n\n"
        "def example_inputs():\n    return (torch.randn(4, 5),)\n"
    )
    found = worker.run(source, Record("x/broken", "x", Status.FAILED, "rotor"), worker.Asked("60%"))
    assert found.status is Status.NO_SUBJECT
    assert "shapes cannot be multiplied" in found.error


def test_the_latest_record_of_a_model_counts(tmp_path: Path) -> None:
    results = tmp_path / "zoo.jsonl"
    append(results, Record("x/a", "kind", Status.FAILED, "rotor", error="a | b"))
    append(results, Record("x/b", "kind", Status.OK, "rotor", measured_bytes=1))
    first = page(list(read_records(results).values()), 2)
    assert "a \\| b" in first and "50 %" in first
    append(results, Record("x/a", "kind", Status.OK, "rotor", measured_bytes=1))
    assert [r.status for r in read_records(results).values()] == [Status.OK, Status.OK]
    assert "Not ok" not in page(list(read_records(results).values()), 2)


def test_the_page_says_where_eagers_prediction_is_far_off() -> None:
    near = Record("x/near", "kind", Status.OK, "rotor", eager_bytes=100, eager_predicted_bytes=99)
    far = Record("x/far", "kind", Status.OK, "rotor", eager_bytes=100, eager_predicted_bytes=90)
    old = Record("x/old", "kind", Status.OK, "rotor", eager_bytes=100)
    assert "for 1 of 2 models: not for x/far (10.0%)." in page([near, far, old], 3)
    assert "Eager's predicted" not in page([old], 1)
