"""`[tool.remat-gen]` in pyproject.toml: the modules of a project, so that no option is typed twice.

    [tool.remat-gen.targets.gpt]
    source = "models/gpt.py"
    budget = "6GB"

Keys are those of the command line; paths are relative to the file they stand in. What is repeatable
there is a list here: `keep = ["probs", "h.*.mlp.up"]`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from remat_gen.ask.choice import suggestion
from remat_gen.ask.generate_options import GenerateOptions
from remat_gen.ask.request import Request, default_output
from remat_gen.ir.errors import UsageError

FILE = "pyproject.toml"
_TABLE = "tool.remat-gen"
_PATHS = ("source", "output")
_OF_A_RUN = ("force", "reprofile", "fresh")
# what a value must be, by the type of the option, and how it is written
_KINDS: Mapping[object, tuple[Callable[[Any], bool], str]] = {
    str: (lambda value: isinstance(value, str), 'a text: {} = "…"'),
    list[str]: (
        lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
        'a list of texts: {} = ["…"]',
    ),
    bool: (lambda value: isinstance(value, bool), "true or false: {} = true"),
    int: (lambda value: type(value) is int, "a whole number: {} = 64"),
    int | str: (lambda value: type(value) in (int, str), '8, or a text: {} = "8:bfloat16"'),
}


def _kind_of(name: str, hint: Any) -> object:
    """Return the key of `_KINDS` for an option of `generate`."""
    kind = next(iter(get_args(hint)), hint)  # of `X | None`
    return int | str if name == "fsdp" else kind if kind in _KINDS else str


_OPTIONS = {
    name.replace("_", "-"): _kind_of(name, hint)
    for name, hint in get_type_hints(GenerateOptions).items()
    if name not in _OF_A_RUN
}
TYPES = dict.fromkeys(_PATHS, str) | _OPTIONS
KEYS = tuple(sorted(TYPES, key=lambda key: [*_KINDS].index(TYPES[key])))


@dataclass(frozen=True, slots=True)
class Target:
    """A module of the project, by its name."""

    name: str
    request: Request
    output: Path


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
        target = _target(path, name, where, _mapping(path, where, keys))
        other = written.setdefault(target.output.resolve(), name)
        if other != name:
            raise UsageError(f"{path}: {where} writes what {other} writes; give it an output")
        yield target


def _target(path: Path, name: str, where: str, keys: Mapping[str, Any]) -> Target:
    _refuse_unknown(path, where, keys, KEYS)
    for key, value in keys.items():
        _refuse_other_kind(path, f"{where}.{key}", key, value)
    if "source" not in keys:
        raise UsageError(f'{path}: {where} has no source; write source = "model.py"')
    source = path.parent / keys["source"]
    output = path.parent / keys["output"] if "output" in keys else default_output(source)
    try:
        return Target(name, _options(path, keys).request(source, output), output)
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
    is_right, example = _KINDS[TYPES[key]]
    if not is_right(value):
        raise UsageError(f"{path}: {where} is {value!r}; write {example.format(key)}")


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
