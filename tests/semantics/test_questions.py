"""A forward that asks whether it is compiled is planned as a plain step runs it."""

from __future__ import annotations

import pytest
from pairs import make_pair_of
from sources import model_source
from steps import assert_right

QUESTIONS = (
    "torch.compiler.is_compiling()",
    "torch.compiler.is_dynamo_compiling()",
    "torch.compiler.is_exporting()",
    "torch._dynamo.is_compiling()",
)


@pytest.mark.limit(
    "`torch.compiler.is_compiling()` in `forward`",
    "no, as in a plain step, where the model's own code asks; yes where what then runs cannot be "
    "traced",
)
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_branch_is_eagers(question: str) -> None:
    """Dynamo says yes: the plan was of the other branch, silently."""
    forward = f"x = self.body(x)\nif {question}:\n    x = x * 2\nreturn self.head(x.sin())"
    assert_right(make_pair_of(model_source(forward), "1GB", "per-layer"))
