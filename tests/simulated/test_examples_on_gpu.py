"""The five examples, planned, run and compared on the simulated GPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from on_gpu_steps import holds_on_gpu

pytestmark = pytest.mark.cuda
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", ["gpt", "hf_llama", "resnet", "transformer", "unet"])
def test_an_example_is_as_planned(name: str, tmp_path: Path) -> None:
    path = Path(shutil.copy(EXAMPLES / f"{name}.py", tmp_path))
    assert holds_on_gpu(path, "60%") == 0
