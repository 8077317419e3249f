"""The command line: options in, files and a few lines out."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from remat_gen import __version__
from remat_gen.budget import Optimizer
from remat_gen.failure import INTERRUPTED, Failure
from remat_gen.interrupt import Interruptible
from remat_gen.ir.errors import UsageError, VerificationError
from remat_gen.pipeline import generate as run
from remat_gen.progress import progress_for
from remat_gen.request import Request, Strategy, default_output, make_limit
from remat_gen.summary import report_json, report_table, summary_json, summary_lines

_COMMANDS = ("generate", "verify")
_PAIRS = 10  # of steps that `verify` times

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

_JsonOption = Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")]
_QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")]
_DebugOption = Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")]


@app.command()
def generate(
    model_file: Annotated[Path, typer.Argument(metavar="MODEL.py", show_default=False)],
    budget: Annotated[
        str | None, typer.Option(metavar="SIZE", help="6GB, 1.5GiB, bytes, or 70% of eager's peak.")
    ] = None,
    device_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Or: what the whole step may take, 24GB.")
    ] = None,
    optimizer: Annotated[
        Optimizer | None, typer.Option(metavar="NAME", help=f"{'|'.join(Optimizer)} [adamw]")
    ] = None,
    headroom: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Left free of --device-memory [1GB].")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="[MODEL_remat.py]; - is stdout."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Class or function [build_model].")
    ] = None,
    inputs: Annotated[
        str | None, typer.Option(metavar="NAME", help="Function [example_inputs].")
    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="auto|cpu|cuda")] = "auto",
    strategy: Annotated[
        Strategy, typer.Option(metavar="NAME", help="|".join(Strategy))
    ] = Strategy.ROCKMATE,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is not ours.")] = False,
    reprofile: Annotated[bool, typer.Option("--reprofile", help="Measure costs again.")] = False,
    as_json: _JsonOption = False,
    quiet: _QuietOption = False,
    debug: _DebugOption = False,
) -> None:
    """Write MODEL_remat.py, a drop-in whose training step fits a memory budget.

    \b
    remat-gen model.py --budget 6GB -o model_remat.py   (the default command)
    remat-gen verify model_remat.py                     (against the original)

    MODEL.py has build_model() and example_inputs(). The budget bounds the activation peak: what a
    step allocates beyond parameters, gradients and optimizer state.
    """
    if as_json and output == "-":
        raise UsageError("--json and -o - both write to stdout; give -o a file")
    request = Request(
        model_file=model_file,
        limit=make_limit(budget, device_memory, optimizer, headroom),
        output=None if output == "-" else Path(output) if output else default_output(model_file),
        model=model,
        inputs=inputs,
        device=device,
        strategy=strategy,
        force=force,
        reprofile=reprofile,
    )
    console = Console(stderr=True)
    with Interruptible(progress_for(console, quiet=quiet)) as progress:
        generated = run(request, progress)
    if generated.output is None:
        sys.stdout.write(generated.text)
    if as_json:
        print(json.dumps(summary_json(generated), indent=1))
    if not quiet:
        for line in summary_lines(generated):
            console.print(line, soft_wrap=True, markup=False, highlight=False)


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(metavar="MODEL_remat.py", show_default=False)],
    as_json: _JsonOption = False,
    quiet: _QuietOption = False,
    debug: _DebugOption = False,
) -> None:
    """Run a generated module and its original, and compare them.

    Compared are outputs, gradients, buffers and the random streams of two training steps, the
    activation peak with budget and prediction, and the step time.
    """
    with Interruptible(progress_for(Console(stderr=True), quiet=quiet)) as progress:
        progress.stage("verify")
        from remat_gen.existing import verify_file

        report = verify_file(file, time_steps=_PAIRS)
    if as_json:
        print(json.dumps(report_json(report), indent=1))
    elif not quiet:
        Console().print(report_table(report))
    if not report.ok:
        failed = ", ".join(row.what for row in report.rows() if row.ok is False)
        raise VerificationError(f"{file}: verification failed: {failed}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code.

    0 done, 2 usage or a model that cannot be traced, 3 infeasible, 4 verification failed, 130
    interrupted.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(f"remat-gen {__version__}")
        return 0
    if not given or given[0] not in _COMMANDS:
        given.insert(0, "generate")
    if "--debug" not in given:
        warnings.simplefilter("ignore")
    failure = Failure(debug="--debug" in given, as_json="--json" in given)
    with failure:
        failure.code = app(given, prog_name="remat-gen", standalone_mode=False) or 0
        if failure.code == INTERRUPTED:  # typer has swallowed it
            raise KeyboardInterrupt
    return failure.code


if __name__ == "__main__":
    sys.exit(main())
