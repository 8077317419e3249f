"""Run a user's file among our own modules: what it imports, prints and raises stays its own."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

import torch

from remat_gen.capture.process.libraries import is_of_library
from remat_gen.capture.process.replaced import kept_dicts
from remat_gen.ir.errors import Interruption, RematError, UsageError, said

_PRIVATE = "_remat_gen_"
_OURS = ("__main__", "remat_gen")


@contextlib.contextmanager
def isolated(folder: Path, siblings: Mapping[str, ModuleType]) -> Iterator[dict[str, ModuleType]]:
    """Put a folder on `sys.path` and its modules into `sys.modules`; afterwards take both out.

    What is yielded is empty, and has at the end what was imported from the folder.

    With a package's folder goes what the package lies in, and the package itself. Modules of
    libraries (torch, transformers) stay: importing them twice does not work. The caller's own that
    are called as files of the folder are not there meanwhile. What the user's code
    prints goes to stderr: stdout is for results.
    """
    found: dict[str, ModuleType] = {}
    folder = folder.resolve()
    root, package = package_of(folder)
    path, before, here = list(sys.path), dict(sys.modules), Path.cwd()
    sys.path[:0] = [str(folder), *([str(root)] if package else [])]
    callers = _shadowed_by(folder)
    for name in callers:
        del sys.modules[name]
    sys.modules.update(siblings)
    importlib.invalidate_caches()
    stream = _Unclosed(sys.stderr)
    try:
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            yield found
    finally:
        sys.path[:] = path
        os.chdir(here)  # relative paths of the command are meant from here
        found |= _of_folder(folder, package.partition(".")[0], before)
        for name in found:
            del sys.modules[name]
            if name in before:
                sys.modules[name] = before[name]
        sys.modules.update(callers)


@contextlib.contextmanager
def as_if_alone() -> Iterator[None]:
    """Have settings of the process back that a model's file makes: the next file may not."""
    dtype = torch.get_default_dtype()
    with kept_dicts(os.environ):
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)


class _Unclosed:
    """A stream that the user's code may close, detach or wrap; the one behind it stays open."""

    def __init__(self, behind: Any) -> None:
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._behind, name)
        return _Unclosed(found) if name == "buffer" else found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave it open."""

    def close(self) -> None:
        """Leave it open."""

    def detach(self) -> Any:
        """Return its bytes, and stay attached."""
        return self.buffer


def package_of(folder: Path) -> tuple[Path, str]:
    """Return what a package's folder lies in, outside of all packages, and its dotted name.

    The name of a folder without `__init__.py` is "".
    """
    names: list[str] = []
    folder = folder.resolve()
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(names)


def private_name(path: Path) -> str:
    """Return the name that a file is imported by: its own package's, and one that nobody has."""
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    name = re.sub(r"\W", "_", f"{_PRIVATE}{path.stem}_{digest}")
    _, package = package_of(path.parent)
    return f"{package}.{name}".lstrip(".")


def _of_folder(
    folder: Path, package: str, before: Mapping[str, ModuleType]
) -> dict[str, ModuleType]:
    """Return the modules of a package, or in the folder, whose topmost was not there before."""
    fresh = (top for top in _tops() if before.get(top) is not sys.modules.get(top))
    users = {
        top
        for top in fresh
        if top == package or _lies_in(sys.modules.get(top), folder)
        if not top.startswith(_PRIVATE)
    }
    found = _below(users)
    return {name: m for name, m in found.items() if not _last(name).startswith(_PRIVATE)}


def _shadowed_by(folder: Path) -> dict[str, ModuleType]:
    """Return the caller's own modules, from elsewhere, whose names files of the folder have."""
    callers = {
        top
        for top in (_tops() & _importable_from(folder)).difference(_OURS)
        if (module := sys.modules[top]) is not None
        and not is_of_library(module)
        and not _lies_in(module, folder)
    }
    return _below(callers)


def _importable_from(folder: Path) -> set[str]:
    """Return the names by which a folder's files and packages are imported."""
    entries = list(folder.iterdir()) if folder.is_dir() else []
    files = {entry.stem for entry in entries if entry.suffix == ".py"}
    return files | {e.name for e in entries if not e.suffix and (e / "__init__.py").is_file()}


def _tops() -> set[str]:
    return {name for name in sys.modules if "." not in name}


def _below(tops: Set[str]) -> dict[str, ModuleType]:
    """Return the modules that are called as one of some packages, or lie in it."""
    modules = list(sys.modules.items())
    return {name: m for name, m in modules if name.partition(".")[0] in tops} if tops else {}


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _lies_in(module: ModuleType | None, folder: Path) -> bool:
    spec = getattr(module, "__spec__", None)
    if spec is None:
        return False
    places = spec.submodule_search_locations or [spec.origin or ""]
    return any(Path(place).resolve().parent == folder for place in places)


@dataclass(slots=True)
class UserCode(contextlib.AbstractContextManager["UserCode"]):
    """Turn whatever the user's code raises into a `UsageError` with the user's file and line.

    A class, because user code may raise anything: signals alone pass.
    """

    path: Path
    doing: str  # "importing it", "build_model()"
    advice: str = ""

    def __exit__(self, _kind: object, error: BaseException | None, _frames: object) -> None:
        """Raise the `UsageError` for an error that is not ours."""
        if error is None or isinstance(error, RematError | KeyboardInterrupt | Interruption):
            return
        where = place_of(self.path, error.__traceback__)
        if isinstance(error, SystemExit):
            raise UsageError(
                f"{where}: {self.doing} calls exit(); leave it out, or put what is not the model "
                'under `if __name__ == "__main__":`'
            ) from error
        if isinstance(error, SyntaxError) and error.filename:
            where = f"{error.filename}:{error.lineno}"
        text = said(error).strip().splitlines()
        what = type(error).__name__ + (f": {text[0]}" if text else "")
        raise UsageError(f"{where}: {self.doing} failed: {what}{self.advice}") from error


class Ending(UserCode):
    """The same where the user's code runs amid ours, for what can be the user's alone.

    That is what is no `Exception`, as `exit()`: it would end the command, and without a word.
    """

    def __exit__(self, kind: object, error: BaseException | None, frames: object) -> None:
        """Raise the `UsageError` for what ends the process."""
        if not isinstance(error, Exception):
            super().__exit__(kind, error, frames)


def place_of(path: Path, frames: TracebackType | None) -> str:
    """Return `file:line` of the innermost frame in the user's file, or just the file."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(frames)
        if Path(frame.filename) == path.resolve()
    ]
    return f"{path}:{lines[-1]}" if lines else str(path)
