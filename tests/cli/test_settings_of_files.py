"""What a model's file sets in the process is its own: no other target's, and no place of a path."""

from __future__ import annotations

from pathlib import Path

from cli_runs import Remat

PLAIN = """\
import torch
from torch import nn


def build_model():
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))


def example_inputs():
    return (torch.randn(16, 8),)
"""
DOUBLE = PLAIN.replace("\n\n\ndef b", "\n\ntorch.set_default_dtype(torch.float64)\n\n\ndef b", 1)
TARGETS = """\
[tool.remat-gen.targets.first]
source = "double.py"
budget = "100%"
[tool.remat-gen.targets.second]
source = "plain.py"
budget = "100%"
"""


def test_a_target_is_planned_and_checked_as_if_alone(remat: Remat, folder: Path) -> None:
    """The second was planned in double precision, and called up to date."""
    files = {"double.py": DOUBLE, "plain.py": PLAIN, "pyproject.toml": TARGETS}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    assert remat("-q").code == 0
    assert "float64" in (folder / "double_remat.py").read_text(encoding="utf-8")
    assert "float64" not in (folder / "plain_remat.py").read_text(encoding="utf-8")
    assert remat("check", "-q").code == 0
    assert remat("verify", "-q", "plain_remat.py").code == 0


def test_a_file_that_goes_to_another_folder(remat: Remat, folder: Path, tmp_path: Path) -> None:
    """It was planned in full, and then there was no such file."""
    there = f"\n\nimport os\n\nos.chdir({str(tmp_path.parent)!r})\n\n\ndef b"
    (folder / "net.py").write_text(PLAIN.replace("\n\n\ndef b", there, 1), encoding="utf-8")
    assert remat("net.py", "--budget", "100%", "-q").code == 0
    assert (folder / "net_remat.py").is_file()
    assert Path.cwd() == folder
