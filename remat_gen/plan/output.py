"""Write the generated files: all of them or none, and never over somebody's work."""

from __future__ import annotations

import ast
import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from remat_gen.ir.errors import GraphError, UsageError
from remat_gen.ir.header import is_unedited, not_ours, read_header
from remat_gen.ir.plan import Plan, parse_plan, plan_there
from remat_gen.terminal.interrupt import signals_wait


def plan_path(module: Path) -> Path:
    """Return where the plan of a generated module lies."""
    return module.with_suffix(".plan.json")


def plan_beside(output: Path | None) -> Plan | None:
    """Return the plan of the module that an output is, where one is there and can be read."""
    return plan_there(plan_path(output)) if output else None


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
        raise UsageError(f"{path}: {not_ours(text)}; --force overwrites it")
    raise UsageError(f"{path}: was edited by hand since it was generated; --force overwrites it")


def check_imports(text: str, source: Path, output: Path) -> None:
    """Check that imports of a model's file lead where they do from where its copy goes.

    Raises:
        UsageError: a relative one leads nowhere, or one to the copy itself.
    """
    name, tree = output.stem, ast.Module([], [])
    with contextlib.suppress(SyntaxError, ValueError, MemoryError, RecursionError):
        tree = ast.parse(text)  # what fails is said where the file is loaded
    if name in {"torch", *sys.stdlib_module_names, *_imported(tree)}:
        raise UsageError(f"{output}: would be imported in place of {name}: name it otherwise")
    if output.resolve().parent == source.resolve().parent:
        return
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level and not _leads(node, output):
            raise UsageError(
                f"{output}: `{ast.unparse(node)}` of {source.name} leads nowhere from there: "
                "write it beside the original"
            )


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield the outermost packages that a file imports by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _leads(node: ast.ImportFrom, output: Path) -> bool:
    package = output.resolve().parents[node.level - 1]
    words = (node.module or node.names[0].name).split(".")
    found = package.joinpath(*words)
    there = found.is_dir() or found.with_suffix(".py").is_file()
    return there or (node.module is None and (package / "__init__.py").is_file())


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
    folder = path.resolve().parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise UsageError(f"{path}: there is no folder {folder}; create it first")
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file in it")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{path}: the folder {folder} is not writable")


def _existing(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")  # lines may end in \r\n
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error


def write_all(texts: Mapping[Path, str]) -> None:
    """Write every file through a temporary one beside it; an interruption leaves the old ones.

    Signals wait meanwhile.

    Raises:
        UsageError: a file cannot be written; none was changed.
        Interruption: a signal came; all is written.
    """
    targets = {path.resolve(): text for path, text in texts.items()}
    names = " and ".join(path.name for path in reversed(list(texts)))
    with signals_wait(f"{names} were written"):
        try:
            with _temporaries(targets) as temporaries, _restored_on_failure(targets):
                for path, temporary in temporaries.items():
                    os.replace(temporary, path)
        except OSError as error:
            raise UsageError(_why_not_written(error, list(texts))) from error


def _why_not_written(error: OSError, paths: list[Path]) -> str:
    """Name the file that was to be written, not the temporary one, which is gone."""
    named = {str(error.filename), str(error.filename2)}
    found = (p for p in paths if any(f".{p.name}." in name or p.name in name for name in named))
    path = next(found, paths[-1])
    advice = "free some space, or name another folder with -o; " if error.errno in _FULL else ""
    return f"{path}: cannot be written: {error.strerror}; {advice}nothing was changed"


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def _temporaries(targets: Mapping[Path, str]) -> Iterator[dict[Path, Path]]:
    """Write the texts beside their targets; remove at the end what was not renamed."""
    names = {path: path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in targets}
    try:
        for path, temporary in names.items():
            _write_through(temporary, targets[path].encode())
            if path.exists():
                shutil.copymode(path, temporary)
        yield names
    finally:
        for temporary in names.values():
            temporary.unlink(missing_ok=True)


def _write_through(path: Path, content: bytes) -> None:
    """Write to the disk itself: some file systems find out only then that they are full."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Wait for other runs that write into the same folder: a module and its plan belong together.

    The lock is on the folder and leaves no file behind; where there are none, it is left out.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            folder = os.open(path.resolve().parent, os.O_RDONLY)
            stack.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _restored_on_failure(paths: Mapping[Path, str]) -> Iterator[None]:
    """Put the old files back unless the block finishes: two renames are not one."""
    before = {path: path.read_bytes() if path.exists() else None for path in paths}
    try:
        yield
    except BaseException:
        for path, content in before.items():
            if content is None:
                path.unlink(missing_ok=True)
            elif path.read_bytes() != content:
                path.write_bytes(content)
        raise
