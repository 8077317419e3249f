"""Write the generated files: all of them or none, and never over somebody's work."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from remat_gen.ir.errors import GraphError, UsageError
from remat_gen.ir.header import body_hash, is_unedited, read_header
from remat_gen.ir.plan import parse_plan

__all__ = ["body_hash", "check_module", "check_plan", "plan_path", "read_header", "write_all"]


def plan_path(module: Path) -> Path:
    """Return where the plan of a generated module lies."""
    return module.with_suffix(".plan.json")


def check_module(path: Path, source: Path, *, force: bool) -> None:
    """Check, before the work begins, that a generated module may be written to `path`.

    Raises:
        UsageError: the folder is not there or not writable; `path` is the model itself, or a file
            that is not ours or was edited by hand (`force` overwrites those two).
    """
    _check_folder(path)
    if path.suffix != ".py":
        raise UsageError(f"{path}: the output is a Python module; name it as in model_remat.py")
    if path.exists() and source.exists() and path.samefile(source):
        raise UsageError(f"{path}: is the model itself; choose another name with -o")
    text = _existing(path)
    if text is None or force or is_unedited(text):
        return
    if read_header(text) is None:
        raise UsageError(f"{path}: was not written by remat-gen; --force overwrites it")
    raise UsageError(f"{path}: was edited by hand since it was generated; --force overwrites it")


def check_plan(path: Path, *, force: bool) -> None:
    """Check that a plan may be written to `path`.

    Raises:
        UsageError: something that is no plan of ours stands there.
    """
    text = _existing(path)
    if text is None or force:
        return
    try:
        parse_plan(text)
    except GraphError as error:
        raise UsageError(f"{path}: {error} (--force overwrites it)") from error


def _check_folder(path: Path) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise UsageError(f"{path}: there is no folder {folder}; create it first")
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file in it")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{path}: the folder {folder} is not writable")


def _existing(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error


def write_all(texts: Mapping[Path, str]) -> None:
    """Write every file through a temporary one beside it; an interruption leaves the old ones.

    Raises:
        UsageError: a file cannot be written; none was changed.
    """
    targets = {path.resolve(): text for path, text in texts.items()}
    try:
        with _temporaries(targets) as temporaries, _restored_on_failure(targets):
            for path, temporary in temporaries.items():
                os.replace(temporary, path)
    except OSError as error:
        place = error.filename2 or error.filename
        raise UsageError(f"{place}: cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def _temporaries(targets: Mapping[Path, str]) -> Iterator[dict[Path, Path]]:
    """Write the texts beside their targets; remove at the end what was not renamed."""
    names = {path: path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in targets}
    try:
        for path, temporary in names.items():
            temporary.write_bytes(targets[path].encode())
            if path.exists():
                shutil.copymode(path, temporary)
        yield names
    finally:
        for temporary in names.values():
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _restored_on_failure(paths: Mapping[Path, str]) -> Iterator[None]:
    """Put the old files back unless the block finishes: two renames are not one."""
    before = {path: path.read_bytes() if path.exists() else None for path in paths}
    finished = False
    try:
        yield
        finished = True
    finally:
        if not finished:
            for path, content in before.items():
                if content is None:
                    path.unlink(missing_ok=True)
                elif path.read_bytes() != content:
                    path.write_bytes(content)
