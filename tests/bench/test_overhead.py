"""The counts that stand for Python's and the dispatcher's work are what they say."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from bench.models import Case, case_of
from overhead import CASES, calls_of, operators_of


def test_calls_are_functions_and_built_ins() -> None:
    def inner() -> int:
        return len("abc")

    def step() -> int:
        return inner() + inner()

    # step, twice inner and len, and the counter's own removal
    assert calls_of(step) == 6
    assert sys.getprofile() is None


def test_operators_of_backward_count_and_views_too() -> None:
    x = torch.ones(2, 3, requires_grad=True)

    assert operators_of(lambda: x.detach().t().add(1)) == 3
    assert operators_of(lambda: (x * 2).sum().backward()) > operators_of(lambda: (x * 2).sum())


def test_cases_find_their_lines(tmp_path: Path) -> None:
    texts = [Case(c, case_of(c).file, ch).write(tmp_path / c).read_text() for _, c, ch in CASES]
    assert "BATCH, IMAGE, CLASSES = 2, 32, 1000" in texts[0]
    assert "LAYERS = 12" in texts[1] and "BATCH = 1\n" in texts[1]
