"""Plans of small models on the simulated GPU: bitwise, and of as many bytes as predicted."""

from __future__ import annotations

from pathlib import Path

import pytest
from on_gpu_steps import holds_on_gpu
from small_nets import NETS

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("name", NETS)
def test_a_plan_holds(name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(NETS[name], encoding="utf-8")
    assert holds_on_gpu(path, "80%", strategy="auto", effort="quick") == 0
