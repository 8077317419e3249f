"""The command `explain`."""

from __future__ import annotations

import json
import shlex
from typing import Annotated

import typer
from rich.console import Console

from remat_gen.cli import option_texts as o
from remat_gen.terminal.interrupt import reported
from remat_gen.terminal.printing import say


def explain(
    file: o.GeneratedFile,
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    rung: o.RungOption = None,
    as_json: o.JsonOption = False,
    quiet: o.QuietOption = False,
    debug: o.DebugOption = False,
) -> None:
    """Say why a value is retained or run again, and what the other choice would cost.

    \b
    remat-gen explain model_remat.py gelu
    remat-gen explain model_remat.py h.0.mlp.up
    remat-gen explain model_remat.py 'h.*.attn.*'

    NAME is what the generated module calls the value, its name in the plan, or a pattern. The
    other choice is replayed on the plan's costs; nothing is measured or allocated here.
    """
    with reported(quiet=quiet) as progress:
        progress.stage("load")
        from remat_gen.explain.explain_json import explanation_json
        from remat_gen.explain.explain_text import details, overview
        from remat_gen.explain.explanation import explain_file

        progress.stage("trace")
        found = explain_file(file, name, rung)
    if as_json:
        print(json.dumps(explanation_json(found), indent=1))
        return
    console = Console()
    if len(found.values) == 1:
        console.print(details(found, found.values[0]))
        return
    console.print(overview(found))
    of_rung = f" --rung {shlex.quote(rung)}" if rung else ""
    more = f"\nmore about one: remat-gen explain {file} {found.shown[0].name}{of_rung}"
    say([more], stderr=False)
