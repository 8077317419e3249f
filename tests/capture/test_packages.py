"""A model file may stand in a package, and import from it as Python lets it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from remat_gen.capture.load.load import load
from remat_gen.capture.process.isolation import package_of
from remat_gen.ir.errors import UsageError

MODEL = """\
from dataclasses import dataclass

import torch
from torch import nn

{imports}


@dataclass
class Config:
    width: int = 8


def build_model():
    return Layer(Config().width)


def example_inputs():
    return (torch.randn(4, 8),)
"""
LAYERS = """\
from torch import nn


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin = nn.Linear(width, width)

    def forward(self, x):
        return self.lin(x).sum()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of a project with the package `nets.small` and a module beside it."""
    inner = tmp_path / "nets" / "small"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
        (folder / "layers.py").write_text(LAYERS)
    return tmp_path


@pytest.mark.parametrize(
    "imports",
    [
        "from .layers import Layer",
        "from ..layers import Layer",
        "from nets.layers import Layer",
        "from nets.small.layers import Layer",
        "from layers import Layer",  # as if the file were run
    ],
)
def test_a_package_is_what_it_is_in_python(project: Path, imports: str) -> None:
    path = project / "nets" / "small" / "model.py"
    path.write_text(MODEL.format(imports=imports))
    before = list(sys.path)
    for _ in range(2):
        loaded = load(path, device="cpu")
        assert not [name for name in sys.modules if name in ("nets", "layers")]
        with loaded.importable():
            assert loaded.model(*loaded.args).requires_grad
    assert sys.path == before


def test_packages_of_one_name_are_told_apart(project: Path, tmp_path: Path) -> None:
    path = project / "nets" / "small" / "model.py"
    path.write_text(MODEL.format(imports="from ..layers import Layer"))
    other = tmp_path / "other" / "nets"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    (other / "layers.py").write_text(LAYERS.replace(".sum()", ".mean()"))
    (other / "model.py").write_text(MODEL.format(imports="from .layers import Layer"))
    first, second = load(path, device="cpu"), load(other / "model.py", device="cpu")
    assert type(first.model) is not type(second.model)


def test_a_folder_that_is_no_package_has_no_relative_imports(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(LAYERS)
    path = tmp_path / "model.py"
    path.write_text(MODEL.format(imports="from .layers import Layer"))
    with pytest.raises(UsageError, match=r"model\.py:6: importing it .*relative import"):
        load(path, device="cpu")


def test_the_name_of_a_package(project: Path) -> None:
    assert package_of(project / "nets" / "small") == (project.resolve(), "nets.small")
    assert package_of(project) == (project.resolve(), "")


def test_the_callers_module_of_the_same_name_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planned layer was the caller's, without a word, where both had its name."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours.py"
    theirs.mkdir()
    (theirs / "layers.py").write_text(LAYERS)
    (theirs / "model.py").write_text(MODEL.format(imports="from layers import Layer"))
    ours.write_text(LAYERS.replace(".sum()", ".mean()"))
    spec = importlib.util.spec_from_file_location("layers", ours)
    assert spec and spec.loader
    called = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(called)
    monkeypatch.setitem(sys.modules, "layers", called)
    model = load(theirs / "model.py", device="cpu").model
    assert model.forward.__code__.co_filename == str(theirs / "layers.py")
    assert sys.modules["layers"] is called
