"""The command `check`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from remat_gen.ask.config import read_targets
from remat_gen.cli import option_texts as o
from remat_gen.ir.errors import RematError
from remat_gen.terminal.interrupt import reported
from remat_gen.terminal.printing import say

if TYPE_CHECKING:
    from remat_gen.review.checking import Checked


def check(
    files: o.GeneratedFiles = None,
    as_json: o.JsonOption = False,
    quiet: o.QuietOption = False,
    debug: o.DebugOption = False,
) -> int:
    """Tell whether generated modules are still what their sources and plans give.

    \b
    remat-gen check model_remat.py          exit 1 and a diff if it is stale
    remat-gen check                         all targets of pyproject.toml

    Traces again and writes again from the committed plan: no measurement, no weights, no GPU. Of a
    plan that was measured on a GPU, only hashes are compared where there is none.
    """
    targets = () if files else read_targets(Path())
    results = _check(files or [target.output for target in targets], quiet=quiet)
    for target in targets:
        results[target.output] = _as_asked(results[target.output], target.request.command())
    if as_json:
        print(json.dumps([_as_json(path, result) for path, result in results.items()], indent=1))
    for result in results.values():
        _say(result, quiet=quiet, to_stdout=not as_json)
    codes = (r.exit_code if isinstance(r, RematError) else int(r.stale) for r in results.values())
    return max(codes)


def _check(files: list[Path], *, quiet: bool) -> dict[Path, Checked | RematError]:
    """Check every file, also after one that cannot be."""
    results: dict[Path, Checked | RematError] = {}
    with reported(quiet=quiet) as progress:
        step = progress.stage("check")
        from remat_gen.capture.process.isolation import as_if_alone
        from remat_gen.review.checking import check_file

        for number, path in enumerate(files):
            step(str(path), number + 1, len(files))
            try:
                with as_if_alone():
                    results[path] = check_file(path)
            except RematError as error:
                results[path] = error
    return results


def _as_asked(result: Checked | RematError, command: str) -> Checked | RematError:
    """Return a verdict that knows what pyproject.toml asks for now."""
    if isinstance(result, RematError) or result.command == command:
        return result
    causes = (*result.causes, "pyproject.toml asks for another plan")
    return replace(result, causes=causes, command=command)


def _say(result: Checked | RematError, *, quiet: bool, to_stdout: bool) -> None:
    if isinstance(result, RematError):
        say([f"remat-gen: error: {result}"])
        return
    if to_stdout and result.diff:
        print(result.diff, end="")
    if result.stale or not quiet:
        say([str(result)], stderr=not to_stdout)


def _as_json(path: Path, result: Checked | RematError) -> dict[str, object]:
    if isinstance(result, RematError):
        return {"file": str(path), "error": str(result)}
    return {
        "file": str(path),
        "stale": result.stale,
        "causes": list(result.causes),
        "command": result.mending,
        "diff": result.diff,
        "by_hashes": result.by_hashes,
    }
