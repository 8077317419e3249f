"""Turn whatever ends a command into a readable line on stderr and an exit code."""

from __future__ import annotations

import json
import signal
import sys
import traceback
from contextlib import AbstractContextManager
from dataclasses import dataclass

from remat_gen.ir.errors import (
    InfeasibleBudgetError,
    Interruption,
    RematError,
    VerificationError,
    said,
)

INTERRUPTED = 130
_USAGE = 2
_NOTHING = "nothing was written"


@dataclass(slots=True)
class Failure(AbstractContextManager["Failure"]):
    """Ends a command; `code` is what the process exits with.

    A class, because anything may arrive here, and nobody wants a traceback unasked.
    """

    debug: bool
    as_json: bool
    code: int = 0

    def __exit__(self, _kind: object, error: BaseException | None, _frames: object) -> bool:
        """Report an error, and swallow it."""
        if error is None:
            return False
        self.code, text = _explain(error)
        if text and self.debug:
            traceback.print_exception(error, file=sys.stderr)
        if text:
            print(f"remat-gen: {text}", file=sys.stderr)
        if text and self.as_json and not isinstance(error, VerificationError):  # its report says so
            print(json.dumps({"error": _details(error, self.code, text)}, indent=1))
        return True


def _explain(error: BaseException) -> tuple[int, str]:
    """Return the exit code and what to print of an error."""
    if isinstance(error, RematError):
        return error.exit_code, f"error: {error}"
    if isinstance(error, Interruption):
        how = "terminated" if error.signal == signal.SIGTERM else "interrupted"
        return 128 + error.signal, f"{how}; {str(error) or _NOTHING}"
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return INTERRUPTED, f"interrupted; {_NOTHING}"
    if isinstance(error, SystemExit) and _is_typers(error):
        return error.code if isinstance(error.code, int) else _USAGE, ""
    if isinstance(error, SystemExit):
        return _USAGE, f"error: the model's code calls exit(); {_NOTHING}"
    wrong_option = getattr(error, "format_message", None)  # typer brings its own click, or click's
    if wrong_option is not None:
        command = getattr(getattr(error, "ctx", None), "command_path", "remat-gen")
        what = wrong_option().replace("Value error, ", "").rstrip(".")
        return _USAGE, f"error: {what}. See {command} --help."
    if isinstance(error, OSError) and error.filename is None:  # of a stream, a full disk's
        return _USAGE, f"error: {error.strerror or error}"
    what = f"{type(error).__name__}: {said(error)}".splitlines()[0]
    return _USAGE, f"error: a defect of remat-gen: {what} (--debug shows where; please report it)"


def _is_typers(error: SystemExit) -> bool:
    """Tell whether it is typer or rich that says so: completion, or a pipe, has ended."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith(("typer", "click", "rich"))


def _details(error: BaseException, code: int, text: str) -> dict[str, object]:
    details: dict[str, object] = {"exit_code": code, "message": text.removeprefix("error: ")}
    details["kind"] = type(error).__name__
    if isinstance(error, InfeasibleBudgetError):
        details["smallest_bytes"] = error.smallest_bytes
        details["strategy"] = error.strategy
        details["operation"] = error.operation
    return details
