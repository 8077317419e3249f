"""The committed examples: their files follow from their plans, and their costs are used again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli_runs import Remat
from committed import EXAMPLES, other_torch
from emitting_parts import emit_again

from remat_gen.ir.errors import UsageError
from remat_gen.ir.header import is_unedited
from remat_gen.plan.output import plan_path
from remat_gen.review.generated_module import Existing

NAMES = ("gpt", "resnet", "unet", "transformer", "hf_llama")


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_plan_gives_the_committed_bytes(name: str) -> None:
    path = EXAMPLES / f"{name}_remat.py"
    committed = Existing.find(path)
    assert is_unedited(path.read_text())
    if other_torch(path):
        with pytest.raises(UsageError, match="cannot be compared"):
            emit_again(committed)
    else:
        assert emit_again(committed) == path.read_text()


def test_costs_of_a_committed_plan_are_used_again(tmp_path: Path, remat: Remat) -> None:
    module = EXAMPLES / "unet_remat.py"
    if reason := other_torch(module):
        pytest.skip(reason)  # tests/cli/test_generate.py has a plan of its own
    for path in (EXAMPLES / "unet.py", module, plan_path(module)):
        shutil.copy(path, tmp_path)
    committed = Existing.find(module)
    asked = committed.plan.asked
    options = ("--budget", asked.budget, "--strategy", asked.strategy, "--json")
    ended = remat(tmp_path / "unet.py", *options)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["costs_reused"] is True
    again = Existing.find(tmp_path / "unet_remat.py").plan
    assert again.costs == committed.plan.costs
    assert again.schedule == committed.plan.schedule or again.versions != committed.plan.versions
