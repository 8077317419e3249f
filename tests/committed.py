"""The committed examples, for tests that read them: another torch traces otherwise than theirs."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest

import remat_gen
from remat_gen.ir.errors import UsageError
from remat_gen.review.generated_module import Existing

EXAMPLES = Path(__file__).parents[1] / "examples"


def other_torch(module: Path) -> str:
    """Say that another torch planned a module, in the product's words; "" where this one did."""
    try:
        Existing.find(module).refuse_other_torch()
    except UsageError as refused:
        return str(refused)
    return ""


@pytest.fixture(scope="session")
def gpt_remat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return examples/gpt_remat.py, or under another torch than its plan's one planned as it is."""
    module = EXAMPLES / "gpt_remat.py"
    if not other_torch(module):
        return module
    return _planned_here(module, tmp_path_factory.getbasetemp() / "examples")


@cache
def _planned_here(module: Path, folder: Path) -> Path:
    plan = Existing.find(module).plan
    folder.mkdir()
    original = Path(shutil.copy(module.with_name(plan.source.file), folder))
    output = folder / module.name
    remat_gen.generate(
        original, budget=plan.asked.budget, strategy=plan.asked.strategy, output=output
    )
    return output
