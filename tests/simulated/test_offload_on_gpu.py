"""Values that go to the host, on the simulated GPU: side streams, events, pinned memory, peaks."""

from __future__ import annotations

from pathlib import Path

import pytest
from on_gpu_steps import SIMULATED, mispredicted_bytes, waited_for

import remat_gen
from remat_gen.capture.load.load import load
from remat_gen.review.verifying import verify_file

pytestmark = pytest.mark.cuda
MODEL = Path(__file__).parents[1] / "semantics" / "models" / "offloaded.py"
RATES = "remat_gen.problem.host_copies_planned"


def test_a_plan_that_sends_values_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bitwise, of as many bytes as predicted; the host waits for no more than eager's does."""
    monkeypatch.setattr(f"{RATES}.host_bytes_per_s", lambda _: 1e12)
    monkeypatch.setattr(f"{RATES}.copy_start_us", lambda _: 0.0)
    path = tmp_path / "stack.py"
    path.write_text(MODEL.read_text(encoding="utf-8"), encoding="utf-8")
    made = remat_gen.generate(path, device="cuda", budget="50%", offload=True, effort="quick")
    assert made.output is not None and "torch.cuda.Stream" in made.text
    report = verify_file(made.output)
    assert report.ok and report.bitwise, report.rows()
    eager, planned = load(path, device="cuda"), load(made.output, device="cuda")
    assert mispredicted_bytes(made) == 0
    events = waited_for(planned)
    copies = [event for event in events if "non_blocking" in event]
    steps = list(made.plan.steps())
    moved = [name for step in steps for name in step.split(" ")[1:] if step[:4] in ("send", "fetc")]
    assert len(copies) == len(moved) * SIMULATED and moved  # nobody waits for these
    assert len(events) - len(copies) <= len(waited_for(eager))
