"""A forward that asks whether it is compiled is planned as a plain step runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_dynamo_knows_the_questions_afterwards(tmp_path: Path) -> None:
    """It notes once in a process which functions they are: not those that stood in their place."""
    forward = f"x = self.body(x)\nif {QUESTIONS[0]}:\n    x = x * 2\nreturn self.head(x)"
    (tmp_path / "net.py").write_text(model_source(forward))
    script = f"""
import torch, remat_gen
remat_gen.generate("net.py", budget="1GB", output="net_remat.py")
for name in {QUESTIONS[:2]}:
    compiled = torch.compile(eval(f"lambda x: x + {{name}}"), backend="eager", fullgraph=True)
    assert compiled(torch.zeros(())) == 1, name
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)


LIBRARY = """\
import torch


def mask(x):
    return None if torch.compiler.is_compiling() else torch.ones(x.shape[-1])
"""


def test_a_library_whose_compiled_branch_fails_is_traced_as_in_a_plain_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LongT5 makes no mask where it is compiled, and then reads its shape."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "asking_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder))
    forward = (
        "import asking_library\nx = self.body(x)\nmask = asking_library.mask(x)\n"
        "return self.head(x.sin() * mask.view(mask.shape))"
    )
    assert_right(make_pair_of(model_source(forward), "1GB", "per-layer"))
