"""Tests on the simulated GPU are run where there is one, which is in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import pytest
import torch


def _why_not() -> str | None:
    try:
        from simulated_gpu.build import why_not
    except ModuleNotFoundError:
        return "no simulated GPU: `nox -s tests` has tests/simulated/site in PYTHONPATH"
    return why_not()


@pytest.fixture(autouse=True, scope="session")
def timed_once() -> Iterator[None]:
    """Time each call once: what a simulated GPU takes says nothing."""
    with mock.patch("remat_gen.capture.profile.timing.Effort.repeats", lambda *_: 1):
        yield


class _Skipped(pytest.Module):
    def collect(self) -> NoReturn:
        pytest.skip(str(_why_not()))


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    """Skip modules with a word where no GPU is simulated."""
    if _why_not() is None:
        assert torch.cuda.is_available()
        return None
    found: pytest.Module = _Skipped.from_parent(parent, path=module_path)
    return found
