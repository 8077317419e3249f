"""The command line: options in, files and a few lines out.

The commands are imported inside of `Failure`, so that a Ctrl-C meanwhile is told as any other.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from remat_gen import __version__
from remat_gen.capture.process.garbage import fewer_collections, leave_libraries_alone
from remat_gen.ir.errors import UsageError
from remat_gen.terminal.completion import ASKED, INSTALLING, say_default
from remat_gen.terminal.failure import INTERRUPTED, Failure

COMMANDS = tuple("generate check diff verify plot explain sweep fit stages solve calibrate".split())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code.

    0 done, 2 usage or a model that cannot be traced, 3 infeasible, 4 verification failed, 130
    interrupted.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(f"remat-gen {__version__}")
        return 0
    if ASKED in os.environ:
        say_default(os.environ, COMMANDS)
    elif not given or given[0] not in (*COMMANDS, *INSTALLING):
        given.insert(0, "generate")
    if "--debug" not in given:
        warnings.simplefilter("ignore")
    failure = Failure(debug="--debug" in given, as_json="--json" in given)
    with fewer_collections(), failure:
        if given[:1] == ["generate"]:
            _refuse_misspelt(given[1:2])
        from remat_gen.cli.typer_app import app

        failure.code = app(given, prog_name="remat-gen", standalone_mode=False) or 0
        if failure.code == INTERRUPTED:  # typer has swallowed it
            raise KeyboardInterrupt
    return failure.code


def _refuse_misspelt(words: Sequence[str]) -> None:
    """Refuse what is nearly a command and no file: it would be taken for a model's.

    Raises:
        UsageError: there is such a word, with the command that is meant.
    """
    from remat_gen.ask.choice import suggestion

    for word in words:
        near = suggestion(word, COMMANDS)
        if near and not Path(word).suffix and not Path(word).exists():
            raise UsageError(f"{word}: no such command, and no file{near}")


def run() -> NoReturn:
    """Be the program: run the command line, and end."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # of an encoding that may lack `×`
            stream.reconfigure(errors="replace")
    leave_libraries_alone()
    code = main()
    eval("0")  # or Python ends by the signal where an interrupt, though told, was inside of an eval
    sys.exit(code)


if __name__ == "__main__":
    run()
