"""A model whose layers stand in files of their own, which are edited after planning."""

from __future__ import annotations

import compileall
import subprocess
import sys
from pathlib import Path

import pytest

from remat_gen import generate

LAYERS = """\
import torch.nn.functional as F
from torch import nn


def halved(x):
    return x / 2


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(self.gate(self.up(x)))

    def gate(self, x):
        return F.silu(x)

    def unused(self, x):
        return x
"""
MODEL = """\
import torch
from torch import nn

from layers import Gated, halved


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Gated() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = x + halved(layer(x))
        return x.square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(4, 8),)
"""
STEP = "import net_remat as n; n.build_model()(*n.example_inputs()).backward(); print('ran')"
EDITS = {
    "nothing": ("", "", "ran"),
    "a comment": ("        return F.silu(x)", "        # quick\n\n        return F.silu(x)", "ran"),
    "what nobody calls": ("        return x\n", "        return -x\n", "ran"),
    "a method": ("F.silu(x)", "F.gelu(x)", "edited"),
    "forward": ("self.down(self.gate(", "self.down(-self.gate(", "edited"),
    "a function": ("x / 2", "x / 3", "edited"),
}


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a planned model in two files."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "layers.py").write_text(LAYERS, encoding="utf-8")
    (folder / "net.py").write_text(MODEL, encoding="utf-8")
    generate(folder / "net.py", budget="90%", output=folder / "net_remat.py", static=True)
    return folder


@pytest.mark.limit(
    "methods of the model's layers in other files, and functions that its file imports, edited "
    "since planning, or another version's",
    "an error in the first step, and the command that plans again; what these call in turn is not "
    "looked at: `remat-gen check` is",
)
@pytest.mark.parametrize(("old", "new", "said"), EDITS.values(), ids=EDITS)
def test_an_edited_layer(planned: Path, old: str, new: str, said: str) -> None:
    (planned / "layers.py").write_text(
        LAYERS.replace(old, new) if old else LAYERS, encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", STEP], cwd=planned, capture_output=True, text=True, check=False
    )
    assert (said if said == "ran" else "the code of layers that forward runs was edited") in (
        done.stdout + done.stderr
    )
    assert (done.returncode == 0) == (said == "ran")


def test_lines_that_are_written_after_the_import(planned: Path) -> None:
    """What runs is what was imported."""
    (planned / "layers.py").write_text(LAYERS, encoding="utf-8")
    edit = "import os, time, pathlib; p = pathlib.Path('layers.py'); later = time.time() + 9; "
    edit += "p.write_text(p.read_text().replace('F.silu', 'F.gelu')); os.utime(p, (later, later)); "
    step = STEP.replace("; n.build", f"; {edit}n.build", 1)
    done = subprocess.run(
        [sys.executable, "-B", "-c", step], cwd=planned, capture_output=True, text=True, check=False
    )
    assert "ran" in done.stdout, done.stderr


def test_without_the_sources(planned: Path) -> None:
    (planned / "layers.py").write_text(LAYERS, encoding="utf-8")
    compileall.compile_file(str(planned / "layers.py"), legacy=True, quiet=1)
    (planned / "layers.py").unlink()
    done = subprocess.run(
        [sys.executable, "-c", STEP], cwd=planned, capture_output=True, text=True, check=False
    )
    assert "ran" in done.stdout, done.stderr
