"""What commands of the command line share: arguments, and the options of `generate`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer

from remat_gen.ask.generate_options import OPTION, GenerateOptions
from remat_gen.ir.errors import UsageError

ModelFile = Annotated[
    Path | None, typer.Argument(metavar="MODEL.py", show_default=False, hidden=True)
]
GeneratedFile = Annotated[Path, typer.Argument(metavar="MODEL_remat.py", show_default=False)]
GeneratedFiles = Annotated[
    list[Path] | None, typer.Argument(metavar="MODEL_remat.py...", show_default=False)
]
GraphFile = Annotated[Path, typer.Argument(metavar="GRAPH.json", show_default=False)]

GraphBudget = Annotated[
    str, typer.Option(metavar="SIZE", help="6GB, 1.5GiB, bytes, or 70% of the plain peak.")
]
RungOption = Annotated[
    str | None,
    typer.Option(metavar="LIMIT", help="One of --rungs: its schedule, 'length<=64'."),
]
OutputOption = Annotated[
    str | None,
    typer.Option("-o", "--output", metavar="FILE", help="[MODEL_remat.py]; - is stdout."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")]
DebugOption = Annotated[
    bool, typer.Option("--debug", hidden=True, help="Show tracebacks of errors.")
]

Command: TypeAlias = Callable[..., Any]


def with_generate_options(*names: str, **others: Any) -> Callable[[Command], Command]:
    """Give a command options of `generate`, all of them where none is named.

    They stand in its help where its parameter `options` does, which takes them together; `others`
    are made by `option`, and stand in place of those of their names.
    """
    kinds = get_type_hints(GenerateOptions)
    found = {field.name: field for field in fields(GenerateOptions)} | others
    shared = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=found[name].default,
            annotation=Annotated[kinds[name], found[name].metadata[OPTION]],
        )
        for name in names or found
    ]

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for one in own.parameters.values():
            here = one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            parameters += shared if one.name == "options" else [here]

        @functools.wraps(command)
        def called(**given: Any) -> Any:
            _refuse_empty(given)
            values = {one.name: given.pop(one.name) for one in shared}
            asked: dict[str, Any] = {n: None if v == [] else v for n, v in values.items()}
            return command(**given, options=GenerateOptions(**asked))

        wrapped: Any = called
        wrapped.__signature__ = own.replace(parameters=parameters)
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        return called

    return decorate


def _refuse_empty(given: Mapping[str, Any]) -> None:
    """Refuse an empty text, as of a shell's variable that is not set: a default is not meant.

    Raises:
        UsageError: one was given.
    """
    for name, value in given.items():
        if name in ("budget", "device_memory"):  # what they lack they say themselves
            continue
        if value == "" or (isinstance(value, list) and "" in value):
            raise UsageError(f"--{name.replace('_', '-')}: an empty text was given")
