"""The generated examples are as clean as hand-written code: ruff's rules, mypy --strict."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
GENERATED = sorted(EXAMPLES.glob("*_remat.py"))
_ERROR = re.compile(r"^(?:.*[/\\])?(?P<file>\w+)\.py:(?P<line>\d+): error: (?P<text>.*)$")
_UNTYPED = re.compile(
    r'Call to untyped function "(split|__init_subclass__)"'
)  # torch's, a library's


def run(*command: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", *map(str, command)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


def test_there_are_examples() -> None:
    assert len(GENERATED) >= 5


def test_ruffs_format_and_rules() -> None:
    for command in (("ruff", "format", "--check"), ("ruff", "check")):
        done = run(*command, *GENERATED)
        assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_strict() -> None:
    """Nothing is reported but what it says about the same line of the original.

    `nn.Module.__call__` returns Any to mypy, so that the user's own lines are not clean. Calls of
    functions without types are torch's `Tensor.split` and a library class's `__init_subclass__`.
    """
    originals = [EXAMPLES / f"{path.stem.removesuffix('_remat')}.py" for path in GENERATED]
    said = run("mypy", "--strict", *originals, *GENERATED).stdout
    found = [match for line in said.splitlines() if (match := _ERROR.match(line))]
    assert found, said
    about = {(m["file"], _line(m)) for m in found if not m["file"].endswith("_remat")}
    new = [
        m.string
        for m in found
        if m["file"].endswith("_remat")
        and (m["file"].removesuffix("_remat"), _line(m)) not in about
        and not (_UNTYPED.search(m["text"]) or _returns_split(m))
    ]
    assert new == []


def _line(match: re.Match[str]) -> str:
    path = EXAMPLES / f"{match['file']}.py"
    return path.read_text(encoding="utf-8").splitlines()[int(match["line"]) - 1]


def _returns_split(match: re.Match[str]) -> bool:
    return "Returning Any" in match["text"] and ".split(" in _line(match)
