"""The commands as one typer application; each has a file of its own."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from remat_gen.cli.app import COMMANDS


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
for _name in COMMANDS:
    _command = getattr(import_module(f"remat_gen.cli.command_{_name}"), _name)
    app.command(cls=_Command)(_command)
