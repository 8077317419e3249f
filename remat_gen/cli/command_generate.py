"""The command `generate`, which is the default."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import typer

from remat_gen.ask.config import read_targets
from remat_gen.ask.generate_options import GenerateOptions
from remat_gen.ask.request import Request, default_output
from remat_gen.cli import option_texts as o
from remat_gen.ir.errors import RematError, UsageError
from remat_gen.plan.pipeline import Generated
from remat_gen.plan.pipeline import generate as run
from remat_gen.show.summary import summary_json, summary_lines
from remat_gen.terminal.interrupt import reported
from remat_gen.terminal.printing import say, write_stdout


@o.with_generate_options()
def generate(
    options: GenerateOptions,
    model_file: o.ModelFile = None,
    output: o.OutputOption = None,
    as_json: o.JsonOption = False,
    quiet: o.QuietOption = False,
    debug: o.DebugOption = False,
) -> None:
    """Write MODEL_remat.py, a drop-in whose training step fits a memory budget.

    \b
    remat-gen model.py --budget 6GB -o model_remat.py   (none: pyproject.toml)
    remat-gen check|diff|verify|solve|explain|plot|sweep|fit|stages|calibrate -h
    """
    if model_file is None:
        of_all = replace(options, force=False, reprofile=False, fresh=False)
        if output or of_all != GenerateOptions():
            raise UsageError("these options belong to one file: name the file (MODEL.py)")
        _generate_all(options, as_json=as_json, quiet=quiet)
        return
    if as_json and output == "-":
        raise UsageError("--json and -o - both write to stdout; give -o a file")
    place = Path(output) if output else default_output(model_file)
    generated = _run(options.request(model_file, None if output == "-" else place), quiet=quiet)
    if generated.output is None:
        write_stdout(generated.text)
    if as_json:
        print(json.dumps(summary_json(generated), indent=1))
    if not quiet:
        say(summary_lines(generated))


def _generate_all(options: GenerateOptions, *, as_json: bool, quiet: bool) -> None:
    """Write every target of pyproject.toml, also after one that cannot be written."""
    from remat_gen.capture.process.isolation import as_if_alone

    results: list[dict[str, object]] = []
    code = 0
    for target in read_targets(Path()):
        request = replace(
            target.request, force=options.force, reprofile=options.reprofile, fresh=options.fresh
        )
        try:
            with as_if_alone():
                generated = _run(request, quiet=quiet)
        except RematError as error:
            code = code or error.exit_code
            results.append({"target": target.name, "error": str(error)})
            print(f"remat-gen: error: target {target.name}: {error}", file=sys.stderr)
        else:
            results.append({"target": target.name, **summary_json(generated)})
            if not quiet:
                say(summary_lines(generated))
    if as_json:
        print(json.dumps(results, indent=1))
    if code:
        raise typer.Exit(code)


def _run(request: Request, *, quiet: bool) -> Generated:
    with reported(quiet=quiet) as progress:
        return run(request, progress)
