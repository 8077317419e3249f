"""Tests on a GPU are run on a real one, or on the simulated one, which needs its own process."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

with contextlib.suppress(ModuleNotFoundError):
    from simulated_gpu.timed_once import timed_once as timed_once


def _why_not() -> str | None:
    if torch.cuda.is_available():
        return None
    try:
        from simulated_gpu.build import why_not
    except ModuleNotFoundError:
        return "no simulated GPU: `nox -s tests` has tests/simulated/site in PYTHONPATH"
    return why_not()


class _Skipped(pytest.Module):
    def collect(self) -> NoReturn:
        pytest.skip(str(_why_not()))


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    """Skip modules with a word where no GPU is simulated."""
    if _why_not() is None:
        return None
    found: pytest.Module = _Skipped.from_parent(parent, path=module_path)
    return found
