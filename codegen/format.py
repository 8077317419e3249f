"""ruff formats what is emitted, with the settings of the folder that it goes to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from remat_gen.ir.errors import EmitError


def ruff_format(text: str, path: Path) -> str:
    """Return the text as `ruff format` leaves it at `path`.

    Raises:
        EmitError: it is no valid Python.
    """
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(path), "-"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if done.returncode:
        raise EmitError(f"the emitted module cannot be formatted: {done.stderr.decode().strip()}")
    return done.stdout.decode()
