"""The commands as one typer application; each has a file of its own."""

from __future__ import annotations

import typer

from remat_gen.cli.command_calibrate import calibrate
from remat_gen.cli.command_check import check
from remat_gen.cli.command_diff import diff
from remat_gen.cli.command_explain import explain
from remat_gen.cli.command_fit import fit
from remat_gen.cli.command_generate import generate
from remat_gen.cli.command_plot import plot
from remat_gen.cli.command_solve import solve
from remat_gen.cli.command_stages import stages
from remat_gen.cli.command_sweep import sweep
from remat_gen.cli.command_verify import verify

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
for _command in (
    generate,
    check,
    diff,
    verify,
    plot,
    explain,
    sweep,
    fit,
    stages,
    solve,
    calibrate,
):
    app.command()(_command)
