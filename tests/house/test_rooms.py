"""The folders of the product: small, on one floor each, and only downwards."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLOORS = ("ir", "capture", "solver", "codegen", "compile", "remat_gen")
FILES = [
    path.relative_to(ROOT) for floor in FLOORS for path in sorted((ROOT / floor).rglob("*.py"))
]
LARGEST = 14  # files in a room


def module_of(path: Path) -> str:
    """Return the name that a file is imported by."""
    parts = path.with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts if parts[0] == "remat_gen" else ("remat_gen", *parts))


PATHS = {module_of(path): path for path in FILES}


def imported(path: Path) -> Iterator[Path]:
    """Yield the product's files that a file imports when it is imported itself."""
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module in PATHS:
            for alias in node.names:
                yield PATHS.get(f"{node.module}.{alias.name}", PATHS[node.module])


def test_every_folder_is_a_package_of_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = project["tool"]["setuptools"]["packages"]
    found = {module_of(path) for path in FILES if path.name == "__init__.py"}
    assert sorted(listed) == sorted(found | {"remat_gen.templates"})


def test_rooms_are_small() -> None:
    counts = Counter(path.parent for path in FILES if path.name != "__init__.py")
    assert {room: n for room, n in counts.items() if n > LARGEST} == {}


def test_a_name_is_of_one_file() -> None:
    counts = Counter(path.name for path in FILES if path.name != "__init__.py")
    assert [name for name, n in counts.items() if n > 1] == []


def test_a_name_is_of_one_file_of_tests() -> None:
    """Pytest imports them by their names alone, and leaves out the second of one."""
    counts = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in counts.items() if count > 1] == []


def test_imports_go_downwards() -> None:
    """Between rooms, and so between files; what a result shows itself with is imported then."""
    rooms: dict[Path, set[Path]] = {}
    for path in FILES:
        above = rooms.setdefault(path.parent, set())
        above |= {found.parent for found in imported(path) if found.parent != path.parent}
    package = Path("remat_gen")  # its face: the version, which imports nothing
    for above in rooms.values():
        above.discard(package)
    assert list(TopologicalSorter(rooms).static_order())
