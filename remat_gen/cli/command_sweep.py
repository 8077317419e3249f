"""The command `sweep`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from remat_gen.ask.choice import several
from remat_gen.ask.generate_options import EFFORTS, GenerateOptions, option
from remat_gen.cli import option_texts as o
from remat_gen.ir.errors import UsageError
from remat_gen.solver.law.search_types import Effort
from remat_gen.terminal.interrupt import reported

Model = Annotated[Path, typer.Argument(metavar="MODEL.py", show_default=False)]
Strategies = Annotated[
    str | None, typer.Option(metavar="A,B", help="Of generate's --strategy [what suits the size].")
]
Points = Annotated[int, typer.Option(metavar="N", min=2, max=100, help="Budgets to try.")]
Picture = Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help=".svg or .png")]


@o.with_generate_options(
    "model",
    "inputs",
    "device",
    "target",
    "effort",
    "reprofile",
    effort=option("NAME", EFFORTS, Effort.QUICK),
)
def sweep(
    model_file: Model,
    strategies: Strategies = None,
    output: Picture = None,
    points: Points = 10,
    *,
    options: GenerateOptions,
    as_json: o.JsonOption = False,
    quiet: o.QuietOption = False,
    debug: o.DebugOption = False,
) -> None:
    """Show what memory costs in time: peak against step time, from least to all.

    \b
    remat-gen sweep model.py
    remat-gen sweep model.py --strategies auto,rotor -o sweep.svg

    Beside the strategies stands what people use today: eager, torch.utils.checkpoint, and
    torch.compile's activation_memory_budget, all replayed on the same graph and costs. The model
    is traced and measured once; costs of an existing plan (MODEL_remat.plan.json) are used again.
    """
    from remat_gen.picture.plot_figure import picture_format, require_matplotlib

    picture = None if output is None else Path(output)
    if picture is not None:
        picture_format(picture)
        require_matplotlib()
    names = several(strategies)
    if strategies is not None and not names:
        raise UsageError("--strategies names none; write them as in auto,rotor")
    with reported(quiet=quiet) as progress:
        from remat_gen.trade_off.sweeping import sweep_file

        request = replace(options, budget="100%").request(model_file, None)
        found = sweep_file(request, None, names, points=points, progress=progress)
    from remat_gen.trade_off.sweep_text import sweep_json, tables

    if as_json:
        print(json.dumps(sweep_json(found), indent=1))
    else:
        Console().print(tables(found), highlight=False)
    if picture is not None:
        from remat_gen.trade_off.sweep_picture import write_sweep

        write_sweep(found, picture)
        if not quiet:
            Console(stderr=True).print(f"written     {picture}", markup=False, highlight=False)
