"""`[tool.remat-gen]` in pyproject.toml: the modules of a project, so that no option is typed twice.

    [tool.remat-gen.targets.gpt]
    source = "models/gpt.py"
    budget = "6GB"

Keys are those of the command line; paths are relative to the file they stand in. What is repeatable
there is a list here: `keep = ["probs", "h.*.mlp.up"]`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remat_gen.ask.choice import suggestion
from remat_gen.ask.generate_options import GenerateOptions
from remat_gen.ask.request import Request, default_output
from remat_gen.ir.errors import UsageError

FILE = "pyproject.toml"
_TABLE = "tool.remat-gen"
TEXTS = (
    "source",
    "output",
    "budget",
    "device-memory",
    "optimizer",
    "headroom",
    "model",
    "inputs",
    "device",
    "target",
    "strategy",
    "effort",
    "rungs",
)
FLAGS = ("static", "compile", "offload", "captured")
LISTS = ("dynamic", "fix", "keep", "recompute", "units")
NUMBERS = ("batch", "in-flight")
NUMBERS_OR_TEXTS = ("fsdp",)
_PATHS = ("source", "output")
KEYS = (*TEXTS, *LISTS, *FLAGS, *NUMBERS, *NUMBERS_OR_TEXTS)


@dataclass(frozen=True, slots=True)
class Target:
    """A module of the project, by its name."""

    name: str
    request: Request

    @property
    def output(self) -> Path:
        """Return the file that is generated."""
        return self.request.output or default_output(self.request.model_file)


def read_targets(folder: Path) -> tuple[Target, ...]:
    """Return the targets of the nearest pyproject.toml, at `folder` or above, that has some.

    Raises:
        UsageError: there is none, or it says what cannot be; the message names file and key.
    """
    for parent in (folder, *folder.resolve().parents):
        path = parent / FILE
        if path.is_file() and (table := _table(path)) is not None:
            return tuple(_targets(path, table))
    raise UsageError(
        f"no {FILE} here or above has targets; name a file, or write [{_TABLE}.targets.NAME] with "
        "source and budget"
    )


def _table(path: Path) -> Mapping[str, Any] | None:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is no TOML: {error}") from error
    table = _mapping(path, "tool", data.get("tool", {})).get("remat-gen")
    return None if table is None else _mapping(path, _TABLE, table)


def _targets(path: Path, table: Mapping[str, Any]) -> Iterable[Target]:
    _refuse_unknown(path, _TABLE, table, ("targets",))
    targets = _mapping(path, f"{_TABLE}.targets", table.get("targets", {}))
    if not targets:
        raise UsageError(f"{path}: [{_TABLE}] has no targets; write [{_TABLE}.targets.NAME]")
    written: dict[Path, str] = {}
    for name, keys in targets.items():
        where = f"{_TABLE}.targets.{name}"
        target = Target(name, _request(path, where, _mapping(path, where, keys)))
        other = written.setdefault(target.output.resolve(), name)
        if other != name:
            raise UsageError(f"{path}: {where} writes what {other} writes; give it an output")
        yield target


def _request(path: Path, where: str, keys: Mapping[str, Any]) -> Request:
    _refuse_unknown(path, where, keys, KEYS)
    for key, value in keys.items():
        _refuse_other_kind(path, f"{where}.{key}", key, value)
    if "source" not in keys:
        raise UsageError(f'{path}: {where} has no source; write source = "model.py"')
    source = path.parent / keys["source"]
    output = path.parent / keys["output"] if "output" in keys else default_output(source)
    try:
        return _options(path, keys).request(source, output)
    except UsageError as error:
        raise UsageError(f"{path}: {where}: {error}") from error


def _options(path: Path, keys: Mapping[str, Any]) -> GenerateOptions:
    """Return the keys as options; a target's own file lies as seen from pyproject.toml."""
    options = {key.replace("-", "_"): keys[key] for key in keys if key not in _PATHS}
    target = keys.get("target", "")
    if target.endswith(".toml"):
        options["target"] = str(path.parent / target)
    return GenerateOptions(**options)


def _refuse_other_kind(path: Path, where: str, key: str, value: object) -> None:
    if key in FLAGS:
        right, example = isinstance(value, bool), f"true or false: {key} = true"
    elif key in NUMBERS:
        right = isinstance(value, int) and not isinstance(value, bool)
        example = f"a whole number: {key} = 64"
    elif key in NUMBERS_OR_TEXTS:
        right, example = type(value) in (int, str), f'8, or a text: {key} = "8:bfloat16"'
    elif key in LISTS:
        right = isinstance(value, list) and all(isinstance(item, str) for item in value)
        example = f'a list of texts: {key} = ["…"]'
    else:
        right, example = isinstance(value, str), f'a text: {key} = "…"'
    if not right:
        raise UsageError(f"{path}: {where} is {value!r}; write {example}")


def _mapping(path: Path, where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {where} is {value!r}; write a table: [{where}]")
    return value


def _refuse_unknown(path: Path, where: str, keys: Iterable[str], known: tuple[str, ...]) -> None:
    for key in keys:
        if key not in known:
            listed = f"; known are {', '.join(known)}"
            if where == _TABLE and key in KEYS:
                listed = f": it is one of a target's, which is a table [{_TABLE}.targets.NAME]"
            hint = suggestion(key, known) or listed
            raise UsageError(f"{path}: {where} has an unknown key {key!r}{hint}")
