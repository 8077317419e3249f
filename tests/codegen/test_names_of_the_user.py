"""What the user's file calls as generated code does goes on being called so, and runs as eager."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest
import torch
from emitting import HEAD, assert_bitwise, at_share, emit

from remat_gen.codegen.module.generated_names import generated_names, names_bound

NET = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x):
        {line}
        return self.down(F.gelu(self.up(x))).sum()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(2, 4, 8),)
"""
ROWS = "def as_rows(x):\n    return x.flip(0) * 2\n"
CHOSEN = f"if torch.Tensor:\n    {ROWS.replace(chr(10) + '    ', chr(10) + '        ')}"
TRIED = "try:\n    from library import as_rows\nexcept ImportError:\n    pass\n"
SET = "def choose():\n    global as_rows\n    as_rows = lambda x: x.flip(0) * 2\n\n\nchoose()\n"
SEQUENCE = "class Sequence(nn.Module):\n    pass\n\n\nclass Watch:\n    pass\n"
TYPED = "from typing import Iterable, Iterator, Mapping\n"


@pytest.mark.parametrize(
    "before",
    [ROWS, CHOSEN, TRIED, SET, "from library import *\n"],
    ids=["def", "in an if", "in a try", "global", "star"],
)
def test_a_helper_of_ours_is_not_the_users_function(tmp_path: Path, before: str) -> None:
    """In evaluation, which is the user's own forward, it had run in place of theirs."""
    (tmp_path / "library.py").write_text(f"import torch\n\n\n{ROWS}")
    made = emit(tmp_path, HEAD + before + NET.format(line="x = as_rows(x)"), at_share("none", 1.0))
    assert "as_rows_(" in made.text
    assert_bitwise(made)
    torch.manual_seed(0)
    x = torch.randn(2, 4, 8)
    original, planned = made.loaded.model.eval(), made.planned.model.eval()
    planned.load_state_dict(original.state_dict())
    assert torch.equal(original(x), planned(x))


@pytest.mark.parametrize(
    "before",
    [
        *(SEQUENCE, TYPED, "aten = torch.ops.aten\n", "from torch import *\n", "COMMAND = 'x'\n"),
        *(
            "import operator as re\n",
            "aten = 3\n",
            "any, dict, list, map, range, type = [None] * 6\n",
        ),
        *("from library import all, min, zip\n", "def describe(x):\n    return x\n"),
    ],
)
def test_everyday_names_are_the_users(tmp_path: Path, before: str) -> None:
    (tmp_path / "library.py").write_text("def all(x):\n    return x\n\n\nmin = zip = all\n")
    assert_bitwise(emit(tmp_path, HEAD + before + NET.format(line="pass"), at_share("none", 1.0)))


def test_another_functional(tmp_path: Path) -> None:
    source = HEAD + NET.format(line="pass").replace("F.gelu", "nn.functional.gelu")
    source = source.replace("import torch.nn.functional as F", "import functools as F")
    assert_bitwise(emit(tmp_path, source, at_share("none", 1.0)))


def test_names_are_found_wherever_a_module_binds_them() -> None:
    text = "for a in []:\n    b = c.d\nwith e as f:\n    (g := 1)\nclass H:\n    i = 1\n"
    text += "def j():\n    global k\n    l = 1\nimport m.n as o, p.q\nfrom r import *\n"
    assert names_bound(text) == {*"abfgHjkop", "*"}


def test_no_name_of_ours_is_a_builtin() -> None:
    assert not generated_names(parts=True, offload=True, units=True, rungs=True) & {*dir(builtins)}
