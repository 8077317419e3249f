"""Run a page as a reader would: write its files, type its commands, run its Python."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from fences import Fence, Page

from remat_gen.cli.app import main

# Measured times and what follows from them differ from run to run.
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "reader",
    "GIT_AUTHOR_EMAIL": "reader@example.org",
    "GIT_COMMITTER_NAME": "reader",
    "GIT_COMMITTER_EMAIL": "reader@example.org",
}


@dataclass(slots=True)
class Reader:
    """Does in one folder what a page says."""

    folder: Path
    capfd: pytest.CaptureFixture[str]
    names: dict[str, Any] = field(default_factory=dict)

    def follow(self, page: Page) -> None:
        """Do all steps of a page.

        Raises:
            AssertionError: a command ends otherwise than the page says; with the place in it.
        """
        with _at(self.folder):
            for step in page.steps:
                if isinstance(step, str):
                    self._shell(step)
                elif not step.not_run:
                    self._do(step)

    def _do(self, fence: Fence) -> None:
        if fence.title:
            path = Path(fence.title)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(fence.text)
        elif fence.language == "python":
            exec(compile(fence.text, fence.place, "exec"), self.names)
        elif fence.language == "console":
            self._type(fence)

    def _type(self, fence: Fence) -> None:
        """Run each line that begins with `$`; what follows it must be in its output, in order."""
        first, *commands = re.split(r"^\$ ", fence.text, flags=re.MULTILINE)
        assert not first and commands, f"{fence.place}: a console's first line begins with $"
        for number, text in enumerate(commands, 1):
            line, _, shown = text.partition("\n")
            code, printed = self._run(line)
            expected = fence.exit_code if number == len(commands) else 0
            assert code == expected, f"{fence.place}: {line}: exit {code}\n{printed}"
            missing = not_in_order(shown, printed)
            assert missing is None, f"{fence.place}: {line}: not printed: {missing}\n{printed}"

    def _run(self, line: str) -> tuple[int, str]:
        words = shlex.split(line, comments=True)
        self.capfd.readouterr()
        code = 0
        if words[0] == "remat-gen":
            code = main(words[1:])
        elif words[0] == "python" and words[1].endswith(".py"):
            _run_script(words[1])
        else:
            self._shell(line)
        return code, "".join(self.capfd.readouterr())

    def _shell(self, line: str) -> None:
        subprocess.run(["bash", "-ec", line], env=os.environ | _GIT, check=True)


def not_in_order(shown: str, printed: str) -> str | None:
    """Return the first line that is shown and not printed; numbers and spaces may differ."""
    lines = iter([_plain(line) for line in printed.splitlines()])
    for line in shown.splitlines():
        pattern = ".*".join(map(re.escape, _plain(line).split("…")))
        if line.strip() and not any(re.fullmatch(pattern, other) for other in lines):
            return line
    return None


def _plain(line: str) -> str:
    return " ".join(_NUMBER.sub("0", line).split())


def _run_script(name: str) -> None:
    """Run a script in this process, as `python NAME` would: torch takes seconds to import."""
    torch.manual_seed(0)
    with _at(Path.cwd()):
        runpy.run_path(name, run_name="__main__")


@contextmanager
def _at(folder: Path) -> Iterator[None]:
    """Stand in a folder, import from it, and forget what was imported."""
    before, path = Path.cwd(), list(sys.path)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]
