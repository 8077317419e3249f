"""A process of the command line that gets a signal when it has come to a certain place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# A shell without job control lets what it runs in the background ignore Ctrl-C.
_LISTEN = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"


def signalled(program: str, folder: Path, word: str, number: int) -> tuple[int, str]:
    """Run a program on small.py, send a signal when it prints a word; return how it ended.

    That is the exit code and what came on stderr after the word.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _LISTEN + program, "small.py", "--budget", "80%"],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while word not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(number)
    rest = process.stderr.read()
    return process.wait(timeout=30), rest
