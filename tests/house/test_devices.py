"""What a kind of device is called, and what drives it, stands in one room."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from remat_gen.capture.device.kinds import TYPES

ROOT = Path(__file__).parents[2]
FLOORS = ("ir", "capture", "solver", "codegen", "compile", "remat_gen")
ROOM = ROOT / "capture" / "device"
FILES = [path for floor in FLOORS for path in sorted((ROOT / floor).rglob("*.py"))]
NAMED = tuple(kind for kind in TYPES if kind != "cpu")


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield what a file's code says, without its docstrings: names behind dots, and constants."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Constant) and id(node) not in prose:
            yield node.lineno, str(node.value)


def of_a_kind(text: str) -> bool:
    return any(text == f"torch.{kind}" or text.partition(":")[0] == kind for kind in NAMED)


@pytest.mark.parametrize("text", [*NAMED, f"torch.{NAMED[0]}", f"{NAMED[0]}:0"])
def test_such_text_is_found(text: str) -> None:
    code = text if text.startswith("torch.") else repr(text)
    assert [found for _, found in texts(ast.parse(f"f({code})")) if of_a_kind(found)] == [text]


def test_kinds_of_devices_are_named_in_their_room() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in FILES
        if path.parent != ROOM
        for line, text in texts(ast.parse(path.read_text(encoding="utf-8")))
        if of_a_kind(text)
    ]
    assert found == []


def test_templates_ask_the_kind() -> None:
    found = [
        f"{path.name}: {line}"
        for path in sorted((ROOT / "templates").glob("*.jinja"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if any(f"torch.{kind}" in line or f'"{kind}' in line for kind in NAMED)
    ]
    assert found == []
