"""One small model's whole generated file, as it is read.

`pytest --update-golden` writes it anew.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from emitting import at_share, emit

from remat_gen.codegen.module.file_header import sha256, with_header
from remat_gen.ir.plan import Predicted, parse_plan

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = Path(__file__).parents[2] / "examples"


def generated(folder: Path) -> str:
    source = (GOLDEN / "tiny.py").read_text(encoding="utf-8")
    return emit(folder, source, at_share("rockmate", 0.3), name="tiny").text


def test_the_generated_file(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = generated(tmp_path)
    golden = GOLDEN / "tiny_remat.txt"
    if request.config.getoption("--update-golden", default=False):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_it_imports_nothing_of_ours_and_executes_nothing(tmp_path: Path) -> None:
    tree = ast.parse(generated(tmp_path))
    modules = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    modules |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert not any((module or "").startswith("remat_gen") for module in modules)
    called = {
        n.func.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
    assert called.isdisjoint({"exec", "eval", "compile", "__import__"})


def test_the_header_says_what_was_made_and_from_what() -> None:
    plan = parse_plan((EXAMPLES / "gpt_remat.plan.json").read_text(encoding="utf-8"))
    predicted = Predicted(2**19, 2**19, 11.25, 2**20, 10.0, 2)
    asked = replace(plan.asked, budget_bytes=600 * 2**10)
    plan = replace(plan, predicted=predicted, asked=asked)
    text = with_header("x = 1\n", plan, 10, ["torch's backward of nn.GRU (rnn)"])
    header, body = text[: -len("x = 1\n")], text[-len("x = 1\n") :]
    assert body == "x = 1\n"
    assert all(line.startswith("#") for line in header.splitlines())
    assert f"body sha256:{sha256(body)[:12]}" in header
    (peaks,) = (line for line in header.splitlines() if "activation peak" in line)
    assert peaks.split() == "# activation peak 1 MiB 512 KiB budget 600 KiB".split()
    assert "1.125" in header
    (left_out,) = (line for line in header.splitlines() if line.startswith("# left out"))
    assert left_out.endswith("torch's backward of nn.GRU (rnn): eager's are without it")
