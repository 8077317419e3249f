"""The options of the command line, each said once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from remat_gen.ask.budget import Optimizer
from remat_gen.ask.generate_options import GenerateOptions
from remat_gen.ask.request import Strategy
from remat_gen.ir.errors import UsageError
from remat_gen.solver.law.search_types import Effort

ModelFile = Annotated[
    Path | None, typer.Argument(metavar="MODEL.py", show_default=False, hidden=True)
]
GeneratedFile = Annotated[Path, typer.Argument(metavar="MODEL_remat.py", show_default=False)]
GeneratedFiles = Annotated[
    list[Path] | None, typer.Argument(metavar="MODEL_remat.py...", show_default=False)
]
GraphFile = Annotated[Path, typer.Argument(metavar="GRAPH.json", show_default=False)]

DeviceBudgetOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="For activations on each device: 6GB, 1.5GiB.")
]
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
ModelOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Class or function [build_model].")
]
InputsOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Function [example_inputs].")
]
DeviceOption = Annotated[
    str, typer.Option(metavar="NAME", help="auto|cpu|cuda|fake [auto]", show_default=False)
]
TargetOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Not here: h200|h100|a100|rtx4090, or FILE.toml."),
]
_NAMED = 5  # of the strategies: what fits the line
StrategyOption = Annotated[
    Strategy,
    typer.Option(
        metavar="NAME",
        help=f"{'|'.join([*Strategy][:_NAMED])}|… [auto]",
        show_default=False,
    ),
]
EffortOption = Annotated[
    Effort,
    typer.Option(
        metavar="NAME",
        help=f"{'|'.join(effort.value for effort in Effort)} [normal]",
        show_default=False,
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite what is not ours.")]
ReprofileOption = Annotated[bool, typer.Option("--reprofile", help="Measure costs again.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")]
DebugOption = Annotated[
    bool, typer.Option("--debug", hidden=True, help="Show tracebacks of errors.")
]

_OF_GENERATE: dict[str, object] = {  # the fields of GenerateOptions, in the order of the help
    "budget": Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="For activations: 6GB, 1.5GiB, or 70% of eager's peak."),
    ],
    "device_memory": Annotated[
        str | None, typer.Option(metavar="SIZE", help="Or: what the whole step may take, 24GB.")
    ],
    "optimizer": Annotated[
        Optimizer | None, typer.Option(metavar="NAME", help=f"{'|'.join(Optimizer)} [adamw]")
    ],
    "headroom": Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Left free of --device-memory [1GB; GPU: + 5%]."),
    ],
    "model": ModelOption,
    "inputs": InputsOption,
    "device": DeviceOption,
    "target": TargetOption,
    "strategy": StrategyOption,
    "effort": EffortOption,
    "dynamic": Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:DIM", help="May be smaller than in the example: x:0,y:0."),
    ],
    "static": Annotated[bool, typer.Option("--static", help="Plan for the example's shapes only.")],
    "fix": Annotated[
        list[str] | None,
        typer.Option(
            "--fix", metavar="NAME", help="An input of the same numbers in each step: edges."
        ),
    ],
    "keep": Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="NAME", help="Retain what is called so: 'h.*.attn.probs'."),
    ],
    "recompute": Annotated[
        list[str] | None,
        typer.Option(
            "--recompute", metavar="NAME", help="Run it again in backward. Both repeatable."
        ),
    ],
    "units": Annotated[
        list[str] | None,
        typer.Option(
            "--units", metavar="PATH", help="Plan submodules alone: 'h.*', or auto. Repeatable."
        ),
    ],
    "fsdp": Annotated[
        str | None,
        typer.Option(
            "--fsdp", metavar="N[:DTYPE]", help="Count what FSDP2 over N processes holds."
        ),
    ],
    "in_flight": Annotated[
        int | None,
        typer.Option("--in-flight", metavar="N", help="Micro-batches that wait for backward [1]."),
    ],
    "rungs": Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Plan shorter steps, too: auto, or 'length<=384, …'."),
    ],
    "force": ForceOption,
    "reprofile": ReprofileOption,
    "fresh": Annotated[bool, typer.Option("--fresh", help="Keep no existing schedule.")],
    "compile": Annotated[bool, typer.Option("--compile", help="Compile what fuses, part by part.")],
    "offload": Annotated[bool, typer.Option("--offload", help="Values may go to the host, too.")],
    "captured": Annotated[  # hidden: a step that waits for its launches is told of it
        bool,
        typer.Option(
            "--captured", hidden=True, help="Steps are captured: count the GPU's time alone."
        ),
    ],
    "batch": Annotated[
        int | None, typer.Option(metavar="N", help="Plan for a batch of N [the example's].")
    ],
}
_DEFAULTS = {field.name: field.default for field in fields(GenerateOptions)}
Command: TypeAlias = Callable[..., None]


def with_generate_options(*names: str, **others: object) -> Callable[[Command], Command]:
    """Give a command options of `generate`, all of them where none is named.

    They stand in its help where its parameter `options` does, which takes them together; `others`
    stand in place of those of their names.
    """

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        shared = {name: others.get(name, _OF_GENERATE[name]) for name in names or _OF_GENERATE}
        parameters = [p for one in own.parameters.values() for p in _spread(one, shared)]

        @functools.wraps(command)
        def called(**given: Any) -> None:
            _refuse_empty(given)
            asked = {name: _plain(given.pop(name)) for name in shared}
            command(**given, options=GenerateOptions(**asked))

        wrapped: Any = called
        wrapped.__signature__ = own.replace(parameters=parameters)
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        return called

    return decorate


def _spread(
    parameter: inspect.Parameter, shared: Mapping[str, object]
) -> Iterator[inspect.Parameter]:
    if parameter.name != "options":
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        return
    for name, option in shared.items():
        kind, default = inspect.Parameter.KEYWORD_ONLY, _DEFAULTS[name]
        yield inspect.Parameter(name, kind, default=default, annotation=option)


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


def _plain(value: Any) -> Any:
    """Return the text of a choice, and None for an option of which none was given."""
    if isinstance(value, Enum):
        return value.value
    return None if value == [] else value
