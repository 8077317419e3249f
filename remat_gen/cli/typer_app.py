"""The commands as one typer application; each has a file of its own."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

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


class _Command(TyperCommand):
    """A command whose help does not list the help itself: all else fits a screen."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option, hidden."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.hidden = True
        return option


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
    app.command(cls=_Command)(_command)
