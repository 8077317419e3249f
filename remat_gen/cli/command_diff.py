"""The command `diff`."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from remat_gen.cli import option_texts as o
from remat_gen.review.difference import difference
from remat_gen.review.difference_text import as_json, as_markdown, as_text
from remat_gen.review.revisions import read_named_plan


class Format(StrEnum):
    """How a difference is written."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", show_default=False)],
    new: Annotated[str, typer.Argument(metavar="NEW", show_default=False)],
    form: Annotated[
        Format, typer.Option("--format", metavar="NAME", help="|".join(Format))
    ] = Format.TEXT,
    debug: o.DebugOption = False,
) -> int:
    """Say how two schedules differ: what is retained, run again and freed; peak and time.

    \b
    remat-gen diff HEAD~1:model_remat.py model_remat.py
    remat-gen diff main:model_remat.py model_remat.py --format markdown

    OLD and NEW are generated modules or their plans, in a folder or in a git revision. The exit
    code is 1 if they differ.
    """
    found = difference(read_named_plan(old), read_named_plan(new))
    if form is Format.JSON:
        print(json.dumps(as_json(found), indent=1))
    else:
        print((as_markdown if form is Format.MARKDOWN else as_text)(found), end="")
    return int(not found.empty)
