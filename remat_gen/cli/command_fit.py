"""The command `fit`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from remat_gen.ask.generate_options import GenerateOptions
from remat_gen.cli import option_texts as o
from remat_gen.ir.errors import UsageError
from remat_gen.terminal.interrupt import reported
from remat_gen.terminal.printing import say

Model = Annotated[Path, typer.Argument(metavar="MODEL.py", show_default=False)]
Written = Annotated[
    str | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write the module of the best batch."),
]
Picture = Annotated[str | None, typer.Option(metavar="FILE", help="Draw the curve: .svg or .png")]


@o.with_generate_options(
    "device_memory",
    "optimizer",
    "headroom",
    "budget",
    "model",
    "inputs",
    "device",
    "target",
    "strategy",
    "effort",
    "dynamic",
    "static",
    "offload",
    "force",
)
def fit(
    model_file: Model,
    options: GenerateOptions,
    output: Written = None,
    picture: Picture = None,
    as_json: o.JsonOption = False,
    quiet: o.QuietOption = False,
    debug: o.DebugOption = False,
) -> None:
    """Find the batch with the most samples per second that fits a device, and write its module.

    \b
    remat-gen fit model.py --device-memory 24GB --optimizer adamw
    remat-gen fit model.py --target h100 -o model_remat.py --picture fit.png

    A larger batch makes better use of a device, and costs re-runs where it does not fit as it is:
    batch and budget are chosen together. Batches other than the example's repeat its samples.
    """
    from remat_gen.picture.plot_figure import picture_format, require_matplotlib

    if picture is not None:
        picture_format(Path(picture))
        require_matplotlib()
    if output == "-":
        raise UsageError("-o -: fit prints its table there; give -o a file")
    if not (options.budget or options.device_memory or options.target):
        raise UsageError("give --device-memory 24GB, --target h100, or --budget 6GB of activations")
    request = options.request(model_file, Path(output) if output else None)
    with reported(quiet=quiet) as progress:
        from remat_gen.best_batch.fitting import fit_file

        found = fit_file(request, progress, write=output is not None)
    from remat_gen.best_batch.fit_text import fit_json, fit_table

    if as_json:
        print(json.dumps(fit_json(found), indent=1))
    else:
        Console().print(fit_table(found), highlight=False)
    if found.written is not None and not quiet:
        from remat_gen.show.summary import summary_lines

        say(summary_lines(found.written))
    if picture is not None:
        from remat_gen.best_batch.fit_picture import write_fit

        write_fit(found, Path(picture))
        if not quiet:
            print(f"written     {picture}", file=sys.stderr)
