"""Plans by name: of a file, or of a file as it is in a git revision (`HEAD~1:model_remat.py`)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from remat_gen.ir.errors import GraphError, UsageError
from remat_gen.ir.plan import Plan, parse_plan, read_plan
from remat_gen.plan.output import plan_path

_SUFFIX = ".plan.json"


def read_named_plan(name: str) -> Plan:
    """Read the plan of a generated module, or the plan itself, from a folder or from git.

    Raises:
        UsageError: there is none; git does not know the revision or the file.
    """
    revision, colon, inside = name.partition(":")
    if colon and inside and not Path(name).exists():
        return _from_git(revision, _plan_of(inside))
    plan_file = Path(_plan_of(name))
    if not Path(name).exists() and not plan_file.exists():
        raise UsageError(f"{name}: no such file")
    return read_plan(plan_file)


def _plan_of(name: str) -> str:
    return name if name.endswith(_SUFFIX) else str(plan_path(Path(name)))


def _from_git(revision: str, path: str) -> Plan:
    """Read a plan from git; the path is the repository's, or begins with ./ for this folder's."""
    where = f"{revision}:{path}"
    text = _git("show", "--end-of-options", where)
    if text is None and not path.startswith("."):
        text = _git("show", "--end-of-options", f"{revision}:./{path}")
    asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if text is None and revision and _git(*asked) is None:
        raise UsageError(f"{revision}: no such revision; in a shallow clone, fetch it first")
    if text is None:
        raise UsageError(f"{where}: git has no such plan; see `git log -- {path}`")
    try:
        return parse_plan(text)
    except GraphError as error:
        raise UsageError(f"{where}: {error}") from error


def _git(*words: str) -> str | None:
    """Return what git prints, or None where it fails."""
    try:
        done = subprocess.run(["git", *words], capture_output=True, check=False)
    except FileNotFoundError as error:
        raise UsageError(f"{words[-1]}: git is not installed") from error
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
