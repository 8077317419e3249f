"""A model whose layers stand in files of their own, which are edited after planning."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from remat_gen import check, generate

LAYERS = """\
import torch.nn.functional as F
from torch import nn


HALF = 2.0


def halved(x):
    return x / HALF


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
EDITS = {
    "nothing": ("", "", True),
    "a comment": ("        return F.silu(x)", "        # quick\n\n        return F.silu(x)", True),
    "what nobody calls": ("        return x\n", "        return -x\n", True),
    "a method": ("F.silu(x)", "F.gelu(x)", False),
    "forward": ("self.down(self.gate(", "self.down(-self.gate(", False),
    "a function": ("x / HALF", "x / HALF / HALF", False),
    "a number": ("HALF = 2.0", "HALF = 4.0", False),
}


@pytest.fixture(scope="module", autouse=True)
def no_byte_code() -> Iterator[None]:
    """Byte code of a file that is edited within a second to the same size would count as fresh.

    Nor does another test find what was imported here.
    """
    with mock.patch.object(sys, "dont_write_bytecode", True), mock.patch.dict(sys.modules):
        yield


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a planned model in two files."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "layers.py").write_text(LAYERS, encoding="utf-8")
    (folder / "net.py").write_text(MODEL, encoding="utf-8")
    generate(folder / "net.py", budget="90%", output=folder / "net_remat.py", static=True)
    return folder


@pytest.mark.parametrize(("old", "new", "fits"), EDITS.values(), ids=EDITS)
def test_an_edited_file_is_the_business_of_check(
    planned: Path, old: str, new: str, *, fits: bool
) -> None:
    edited = LAYERS.replace(old, new) if old else LAYERS
    (planned / "layers.py").write_text(edited, encoding="utf-8")
    checked = check(planned / "net_remat.py")
    assert checked.stale != fits, str(checked)


def test_a_new_process_finds_the_same(planned: Path) -> None:
    (planned / "layers.py").write_text(LAYERS.replace(*EDITS["a method"][:2]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-B", "-m", "remat_gen", "check", "net_remat.py"],
        cwd=planned,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr


def test_a_number_of_another_file_that_changes(
    planned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (planned / "layers.py").write_text(LAYERS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(planned))
    module: Any = importlib.import_module("net_remat")
    layers: Any = importlib.import_module("layers")
    model = module.build_model()
    model(*module.example_inputs()).backward()
    monkeypatch.setattr(layers, "HALF", 3.0)
    with pytest.raises(ValueError, match=r"layers:HALF is 3\.0, planned for 2\.0"):
        model(*module.example_inputs())


def test_a_file_that_forward_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planned step does not import it; what it read there is compared all the same."""
    (tmp_path / "late_layers.py").write_text(LAYERS, encoding="utf-8")
    model = MODEL.replace("\nfrom layers import Gated, halved\n", "").replace(
        "            x = x + halved(layer(x))",
        "            from late_layers import halved\n\n            x = x + halved(layer(x))",
    )
    model = model.replace("Gated()", "nn.Linear(8, 8)")
    (tmp_path / "late.py").write_text(model, encoding="utf-8")
    generate(tmp_path / "late.py", budget="90%", output=tmp_path / "late_remat.py", static=True)
    assert "late_layers" not in sys.modules
    monkeypatch.syspath_prepend(str(tmp_path))
    module: Any = importlib.import_module("late_remat")
    built = module.build_model()
    built(*module.example_inputs()).backward()
    monkeypatch.setattr(sys.modules["late_layers"], "HALF", 3.0)
    with pytest.raises(ValueError, match=r"late_layers:HALF is 3\.0, planned for 2\.0"):
        built(*module.example_inputs())


@pytest.mark.parametrize(
    ("reads", "name"),
    [
        ("import late_settings as s; x = x * s.SCALE", "SCALE"),
        ("from late_settings import SCALE; x = x * SCALE", "SCALE"),
        ("import importlib; x = x * importlib.import_module('late_settings').SCALE", "SCALE"),
        ("from late_settings import OF; x = x * OF['n']", "OF[n]"),
    ],
)
def test_numbers_of_a_file_that_forward_imports(
    reads: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of one at the top of the file were compared, those of this one nowhere."""
    (tmp_path / "late_settings.py").write_text("SCALE, OF = 1.5, {'n': 1.5}\n", encoding="utf-8")
    model = MODEL.replace("from layers import Gated, halved\n", "").replace(
        "halved(layer", "(layer"
    )
    model = model.replace("Gated()", "nn.Linear(8, 8)").replace(
        "    def forward(self, x):\n", f"    def forward(self, x):\n        {reads}\n"
    )
    (tmp_path / "net_late.py").write_text(model, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "net_late_remat", raising=False)
    monkeypatch.delitem(sys.modules, "late_settings", raising=False)
    generate(tmp_path / "net_late.py", budget="90%", static=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    module: Any = importlib.import_module("net_late_remat")
    settings: Any = importlib.import_module("late_settings")
    built = module.build_model()
    built(*module.example_inputs()).backward()
    settings.SCALE, settings.OF["n"] = 2.0, 2.0
    with pytest.raises(ValueError, match=rf"late_settings:{re.escape(name)} is 2\.0, planned"):
        built(*module.example_inputs())
