"""Frozen dataclasses to JSON and back: sorted keys, short lists on one line, strict reading.

A field that has its default is left out, and may be missing.

coded ::= dataclass (an object, or a row: a list of its fields) | bool | int | float | str
        | tuple of coded (a list) | mapping of str to coded (an object) | coded or None
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from remat_gen.ir.errors import GraphError, UsageError

_SCALARS = (bool, int, float, str, types.NoneType)
_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_WIDTH = 100
_MOST = sys.float_info.max
_hints = functools.cache(get_type_hints)  # compiles each annotation anew


def dump(value: object, rows: frozenset[type] = frozenset()) -> str:
    """Write a dataclass as JSON text; dataclasses in `rows` become lists of their fields."""
    return _text(_plain(value, rows), "") + "\n"


def _plain(value: Any, rows: frozenset[type]) -> Any:
    if is_dataclass(value) and type(value) in rows:
        return _row(value, rows)
    if is_dataclass(value):
        said = [f for f in fields(value) if getattr(value, f.name) != f.default]
        return {f.name: _plain(getattr(value, f.name), rows) for f in said}
    if isinstance(value, Mapping):
        return {name: _plain(item, rows) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item, rows) for item in value]
    return value


def _row(value: Any, rows: frozenset[type]) -> list[Any]:
    """Return the fields of a row; defaults at its end are left out."""
    said = list(fields(value))
    while said and said[-1].default is not MISSING:
        if getattr(value, said[-1].name) != said[-1].default:
            break
        said.pop()
    return [_plain(getattr(value, f.name), rows) for f in said]


def _text(plain: Any, indent: str) -> str:
    inner = indent + " "
    if isinstance(plain, dict) and plain:
        items = [f"{json.dumps(k)}: {_text(plain[k], inner)}" for k in sorted(plain)]
        return "{\n" + ",\n".join(inner + item for item in items) + "\n" + indent + "}"
    line = json.dumps(plain, ensure_ascii=False, allow_nan=False)
    if not isinstance(plain, list) or not plain or (_is_flat(plain) and len(line) <= _WIDTH):
        return line
    items = [_text(item, inner) for item in plain]
    return "[\n" + ",\n".join(inner + item for item in items) + "\n" + indent + "]"


def _is_flat(plain: Any) -> bool:
    """Tell whether there are but scalars in a list, or lists of them."""
    if isinstance(plain, list):
        return all(map(_is_flat, plain))
    return isinstance(plain, _SCALARS)


def load(kind: type[Any], text: str, rows: frozenset[type] = frozenset()) -> Any:
    """Read what `dump` wrote as a `kind`.

    Raises:
        GraphError: it is no JSON, or not what `kind` says; the message names the key.
    """
    return read(kind, parse(text), "", rows)


def parse(text: str) -> Any:
    """Read JSON without NaN, infinities, and keys that stand twice in an object.

    Raises:
        GraphError: the text is none.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        if has_conflict(text):
            said = "has the marks of a merge in it; keep one side, and generate it again"
            raise GraphError(said) from error
        raise GraphError(f"is no JSON: {error}") from error


def has_conflict(text: str) -> bool:
    """Tell whether a merge has left its marks in a text."""
    lines = [line[:7] for line in text.splitlines()]
    return "<<<<<<<" in lines and ">>>>>>>" in lines


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise GraphError(f"has the key {twice!r} twice")
    return plain


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def read(kind: Any, plain: Any, where: str, rows: frozenset[type] = frozenset()) -> Any:
    """Read one value of type `kind` at the key `where`.

    Raises:
        GraphError: it is something else.
    """
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        if plain is None:
            return None
        (kind,) = (option for option in get_args(kind) if option is not types.NoneType)
        return read(kind, plain, where, rows)
    if origin is tuple:
        return tuple(
            read(get_args(kind)[0], item, f"{where}[{i}]", rows)
            for i, item in enumerate(_expect(list, "a list", plain, where))
        )
    if origin is Mapping:
        items = _expect(dict, "an object", plain, where)
        item_kind = get_args(kind)[1]
        return {k: read(item_kind, v, _join(where, k), rows) for k, v in items.items()}
    if kind in rows:
        return _read_row(kind, _expect(list, "a list", plain, where), where, rows)
    if is_dataclass(kind):
        return _read_object(kind, _expect(dict, "an object", plain, where), where, rows)
    return _read_scalar(kind, plain, where)


def _read_object(kind: Any, plain: dict[str, Any], where: str, rows: frozenset[type]) -> Any:
    hints = _hints(kind)
    needed = [f.name for f in fields(kind) if f.default is MISSING]
    missing = [name for name in needed if name not in plain]
    unknown = [name for name in plain if name not in hints]
    if missing or unknown:
        what = f"has no {missing[0]!r}" if missing else f"has an unknown {unknown[0]!r}"
        raise GraphError(f"{where or 'the file'} {what}")
    return kind(**{n: read(hints[n], item, _join(where, n), rows) for n, item in plain.items()})


def _read_row(kind: Any, plain: list[Any], where: str, rows: frozenset[type]) -> Any:
    hints = _hints(kind)
    parts: tuple[Field[Any], ...] = fields(kind)
    needed = sum(f.default is MISSING for f in parts)
    if not needed <= len(plain) <= len(parts):
        names = ", ".join(f.name for f in parts)
        raise GraphError(f"{where}: expected a row of {names}, found {len(plain)} items")
    pairs = zip(parts, plain, strict=False)
    return kind(*(read(hints[f.name], v, f"{where}.{f.name}", rows) for f, v in pairs))


def _read_scalar(kind: Any, plain: Any, where: str) -> Any:
    right = type(plain) is kind or (kind is float and type(plain) is int)
    if not right or (kind is float and not -_MOST <= plain <= _MOST):
        raise GraphError(f"{where}: expected {_NAMES[kind]}, found {json.dumps(plain)[:60]}")
    return float(plain) if kind is float else plain


def _expect(kind: type[Any], name: str, plain: Any, where: str) -> Any:
    if not isinstance(plain, kind):
        found = json.dumps(plain)[:60]
        raise GraphError(f"{where or 'the file'}: expected {name}, found {found}")
    return plain


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


@contextlib.contextmanager
def errors_name(path: Path, *, missing: str = "no such file") -> Iterator[None]:
    """Name the file in what reading and parsing it raises.

    Raises:
        UsageError: it is not there (`missing` says so), cannot be read, or holds something else.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise UsageError(f"{path}: {missing}") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is no JSON: not UTF-8 text") from error
    except GraphError as error:
        raise UsageError(f"{path}: {error}") from error
