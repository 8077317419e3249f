"""ruff formats what is emitted, with the settings of the folder that it goes to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from remat_gen.ir.errors import EmitError


def tidy(text: str, source: str, path: Path) -> str:
    """Return the text as ruff leaves it at `path`: formatted, and as well sorted as the source was.

    Imports are sorted only if the user's are: theirs are not ours to move.

    Raises:
        EmitError: the text is no valid Python.
    """
    if _ruff(source, path, "check", "--select", "I", "--quiet").returncode == 0:
        done = _ruff(text, path, "check", "--select", "I", "--fix-only", "--quiet")
        text = done.stdout.decode() or text
    done = _ruff(text, path, "format")
    if done.returncode:
        raise EmitError(f"the emitted module cannot be formatted: {done.stderr.decode().strip()}")
    return done.stdout.decode()


def _ruff(text: str, path: Path, *command: str) -> subprocess.CompletedProcess[bytes]:
    arguments = [
        sys.executable,
        "-m",
        "ruff",
        *command,
        "--stdin-filename",
        str(path.resolve()),
        "-",
    ]
    folder = path.resolve().parent  # where no settings are, ruff takes the working folder for root
    return subprocess.run(
        arguments, input=text.encode(), capture_output=True, check=False, cwd=folder
    )
