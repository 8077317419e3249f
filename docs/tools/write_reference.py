"""Write docs/reference/cli.md from the commands, and plan.md from the plan's own types.

python docs/tools/write_reference.py
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import typer

from remat_gen.ask.config import KEYS, TYPES
from remat_gen.cli.typer_app import app
from remat_gen.ir import plan
from remat_gen.ir.costs import Cost, PartCost, Smaller

FOLDER = Path(__file__).parents[1] / "reference"
_CLI = """# Command line

`remat-gen MODEL.py …` is `remat-gen generate MODEL.py …`. `remat-gen --version` prints the version;
`--help` after a command prints what stands here.

Exit codes: 0 done · 1 stale, or different · 2 usage, or a model that cannot be traced
· 3 infeasible · 4 verification failed · 130 interrupted. Progress and summaries go to stderr,
results to stdout. `NO_COLOR=1` and `--quiet` are honoured.

Completion of commands, options and strategies: `remat-gen --install-completion`
(`--show-completion` prints the script).
"""
_PLAN = """# The plan file

`model_remat.plan.json` lies beside the module and is committed with it. It is JSON with sorted keys
and holds all that is needed to write the same bytes again; no time stamp, host or path. `generate`
takes its costs while graph, shapes and device match, as a lock file is used again, and keeps its
schedule while that is about as good (`--fresh` keeps none); `check` writes the module again from
it. An unknown or missing key is an error.

The keys are those of the types in `ir/plan.py`.
"""
_KEYS = """## Targets in pyproject.toml

`[tool.remat-gen.targets.NAME]` takes the options of `generate` under the same names; paths are
relative to the file.

| key | kind |
|---|---|
"""


def cli_page() -> str:
    """Return the page of all commands."""
    group: Any = typer.main.get_command(app)  # typer may bring a click of its own, without types
    commands: Mapping[str, Any] = group.commands
    return "\n".join([_CLI, *(_command(name, each) for name, each in commands.items()), _keys()])


def _command(name: str, command: Any) -> str:
    paragraphs = inspect.cleandoc(command.help).split("\n\n")
    text = "\n\n".join(_paragraph(paragraph) for paragraph in paragraphs)
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    used = " ".join(p.metavar if p.required else f"[{p.metavar}]" for p in arguments)
    options = [_option(p) for p in command.params if p.param_type_name == "option"]
    table = "\n".join(["| option | |", "|---|---|", *options])
    return f"## {name}\n\n`remat-gen {name} {used} [OPTIONS]`\n\n{text}\n\n{table}\n"


def _paragraph(text: str) -> str:
    """Return a paragraph; examples, which the help must not wrap, as a block."""
    if text.startswith("\b"):
        return "```text\n" + text.removeprefix("\b").strip("\n") + "\n```"
    return " ".join(text.split())


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    value = "" if option.is_flag else f" `{option.metavar}`"
    return f"| {names}{value} | {(option.help or '').replace('|', ' · ')} |"


def _keys() -> str:
    kinds: dict[object, str] = {str: "text", list[str]: "list of texts", bool: "true or false"}
    told = ((key, kinds[TYPES[key]]) for key in KEYS if TYPES[key] in kinds)
    return _KEYS + "".join(f"| `{key}` | {kind} |\n" for key, kind in told)


def plan_page() -> str:
    """Return the page of the plan's types, the plan itself first."""
    return "\n".join([_PLAN, *(_kind(kind) for kind in _kinds())])


def _kinds() -> Iterator[type]:
    yield plan.Plan
    own = (kind for kind in vars(plan).values() if getattr(kind, "__module__", "") == plan.__name__)
    kinds = (kind for kind in own if inspect.isclass(kind) and is_dataclass(kind))
    yield from (kind for kind in kinds if kind is not plan.Plan)
    yield from (Cost, PartCost, Smaller)


def _kind(kind: type) -> str:
    hints = typing.get_type_hints(kind)
    rows = [f"| `{field.name}` | {_type(hints[field.name])} |" for field in fields(kind)]
    table = "\n".join(["| key | |", "|---|---|", *rows])
    return f"## {kind.__name__}\n\n{inspect.getdoc(kind)}\n\n{table}\n"


def _type(hint: Any) -> str:
    """Say a type in JSON's words."""
    words = {str: "text", int: "integer", float: "number", bool: "true or false"}
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in words:
        return words[hint]
    if inspect.isclass(hint) and is_dataclass(hint):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    if origin is tuple:
        return f"list of {_type(inner[0])}"
    if type(None) in inner:
        return f"{_type(inner[0])}, or null"
    return f"object: {_type(inner[1])} by name"


def write() -> None:
    """Write both pages."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "cli.md").write_text(cli_page(), encoding="utf-8")
    (FOLDER / "plan.md").write_text(plan_page(), encoding="utf-8")


if __name__ == "__main__":
    write()
