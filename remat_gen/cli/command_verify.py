"""The command `verify`."""

from __future__ import annotations

import json

from rich.console import Console

from remat_gen.cli import option_texts as o
from remat_gen.ir.errors import VerificationError
from remat_gen.show.summary import report_json, report_table
from remat_gen.terminal.interrupt import reported

_PAIRS = 10  # of steps that are timed


def verify(
    file: o.GeneratedFile,
    as_json: o.JsonOption = False,
    quiet: o.QuietOption = False,
    debug: o.DebugOption = False,
) -> None:
    """Run a generated module and its original, and compare them.

    \b
    remat-gen verify model_remat.py         exit 4 if they differ

    Compared are outputs, gradients, buffers and the random streams of two training steps, the
    activation peak with budget and prediction, and the step time. An original that does not repeat
    itself fails as well.
    """
    with reported(quiet=quiet) as progress:
        step = progress.stage("verify")
        from remat_gen.review.verifying import verify_file

        report = verify_file(file, time_steps=_PAIRS, progress=step)
        from remat_gen.picture.timeline_measured import remember

        remember(file, report)
    if as_json:
        print(json.dumps(report_json(report), indent=1))
    elif not quiet:
        Console().print(report_table(report))
    if not report.ok:
        failed = ", ".join(f"{row.what} {row.result}" for row in report.rows() if row.ok is False)
        raise VerificationError(f"{file}: verification failed: {failed}")
