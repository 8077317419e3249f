"""A chain of views that is read twice is a helper; the result is to the bit as before."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from emitting import HEAD, assert_bitwise, at_share, emit
from test_golden import GOLDEN

from remat_gen.codegen.expressions.spelling import METHODS

TINY = (GOLDEN / "tiny.py").read_text(encoding="utf-8")
TWO_SHAPES = (
    HEAD
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.long = nn.Linear(8, 8)
        self.short = nn.Linear(8, 8)

    def forward(self, x, y):
        query = self.long(x).view(4, 6, 2, 4).transpose(1, 2)
        a = torch.softmax(query, -1).sum() + (query * query).sum()
        query = self.short(y).view(4, 3, 2, 4).transpose(1, 2)
        return a + torch.softmax(query, -1).sum() + (query * query).sum()


def build_model():
    return Net()


def example_inputs():
    return torch.randn(4, 6, 8), torch.randn(4, 3, 8)
"""
)


def chains_of(node: ast.AST) -> list[tuple[str, str]]:
    """Return (what is viewed, views) of every chain of two views or more, and of its beginnings."""
    found = []
    for call in ast.walk(node):
        links, base = 0, call
        while (
            isinstance(base, ast.Call)
            and isinstance(base.func, ast.Attribute)
            and base.func.attr in METHODS
        ):
            base, links = base.func.value, links + 1
            base = base.value if isinstance(base, ast.Subscript) else base
        if links > 1 and isinstance(base, ast.Name | ast.Attribute):
            text = ast.unparse(base)
            found.append((text, ast.unparse(call).removeprefix(text)))
    return found


def blocks_of(text: str) -> list[ast.ClassDef]:
    classes = [n for n in ast.parse(text).body if isinstance(n, ast.ClassDef)]
    return [c for c in classes if any(ast.unparse(b) == "PlannedBlock" for b in c.bases)]


@pytest.mark.parametrize("source", [TINY, TWO_SHAPES], ids=["split", "two shapes"])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_no_chain_of_views_is_written_twice(tmp_path: Path, source: str, share: float) -> None:
    text = emit(tmp_path, source, at_share("rockmate", share)).text
    for block in blocks_of(text):
        twice = [chain for chain, n in Counter(chains_of(block)).items() if n > 1]
        assert twice == []


FOUR_WAYS = (
    HEAD
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x):
        h = torch.tanh(self.weight * x)
        a, b, c, d = torch.meshgrid(h, h, h, h, indexing="ij")
        return (a * b + c * d).sum()


def build_model():
    return Net()


def example_inputs():
    return (torch.tensor(1.0),)
"""
)


def test_chains_that_read_alike_have_names_of_their_own(tmp_path: Path) -> None:
    """There were three names for each: the fourth chain ended in a StopIteration."""
    text = emit(tmp_path, FOUR_WAYS, at_share("rockmate", 1.0)).text
    helpers = re.findall(r"return h(\.view\(.*\)\.expand\(3, 3, 3, 3\))\n", text)
    assert len(helpers) == len(set(helpers)) == 4


def test_a_helper_is_called_more_than_once_and_says_what_it_makes(tmp_path: Path) -> None:
    text = emit(tmp_path, TINY, at_share("rockmate", 1.0)).text
    assert text.count("split_qkv(") > 2
    assert '"""Split [64, 96] into parts like [4, 16, 32]."""' in text
    assert "return qkv.view(4, 16, 96).split(32, 2)" in text


def test_equal_names_of_other_shapes_are_told_apart(tmp_path: Path) -> None:
    emitted = emit(tmp_path, TWO_SHAPES, at_share("rockmate", 1.0))
    helpers = [n.name for n in ast.parse(emitted.text).body if isinstance(n, ast.FunctionDef)]
    views = [name for name in helpers if name.startswith("transposed_")]
    assert len(views) == len(set(views)) == 2
    assert_bitwise(emitted)


def test_a_name_of_the_user_is_left_alone(tmp_path: Path) -> None:
    emitted = emit(tmp_path, TINY + "\n\nsplit_qkv = None\n", at_share("rockmate", 1.0))
    assert "def split_qkv(" not in emitted.text
    assert_bitwise(emitted)
