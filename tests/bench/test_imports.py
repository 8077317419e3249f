"""What the scripts of benchmarks take of the project is there: no test runs them all."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").rglob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_names_are_there(script: Path) -> None:
    tree = ast.parse(script.read_text(encoding="utf-8"))
    taken = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    for node in taken:
        if str(node.module).partition(".")[0] == "remat_gen":
            found = import_module(str(node.module))
            assert not [name.name for name in node.names if not hasattr(found, name.name)]
