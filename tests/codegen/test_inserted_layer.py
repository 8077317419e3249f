"""One more layer in examples/gpt.py changes the table, that layer's lines and what counts blocks.

With a strategy that treats all layers alike: where the solver is asked for the best schedule, other
layers' schedules change with the budget, as docs/design.md says.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from emitting import emit
from test_stability import changed, without

from remat_gen.solver.problem import Problem
from remat_gen.solver.schedule import Schedule
from remat_gen.solver.solve import Solver

GPT = (Path(__file__).parents[2] / "examples" / "gpt.py").read_text(encoding="utf-8")
LARGER = GPT.replace("LAYERS = 4", "LAYERS = 5")
ALLOWED = 20

# The distance to the last block, to which the tied weight's gradient reaches, and the model's hash.
COUNTED = re.compile(r"\bafter_\d+\b|step\[at \+ \d+\]|structure = '\w+'|LAYERS = \d")


def per_layer(problem: Problem) -> Schedule:
    """Keep the input of every layer, as torch.utils.checkpoint does: at 60 % of eager's peak."""
    solver = Solver(problem, "per-layer")
    return solver.solve(solver.plain.peak_bytes * 6 // 10).schedule


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("gpt")
    return emit(folder, GPT, per_layer).text, emit(folder, LARGER, per_layer).text


def test_few_lines_change(texts: tuple[str, str]) -> None:
    lines = changed(*texts)
    assert 0 < len(lines) <= ALLOWED, "\n".join(lines)
    assert [line for line in lines if "h.4" in line or "self.h[4]" in line]


def test_nothing_else_changes(texts: tuple[str, str]) -> None:
    """Outside of the model's class only numbers that count blocks differ."""
    old, new = (COUNTED.sub("", without(text, "GPT")) for text in texts)
    assert old == new


def test_other_layers_lines_stay(texts: tuple[str, str]) -> None:
    old, new = texts
    kept = [line for line in old.splitlines() if re.search(r"# h\.[0-3]\.|self\.h\[[0-3]\]", line)]
    assert kept
    assert [line for line in kept if line not in new.splitlines()] == []
