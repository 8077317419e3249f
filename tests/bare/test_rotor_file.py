"""Rotor's chain profiles: read in each form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remat_gen.bare.graph_file import read_instance
from remat_gen.bare.rotor_file import ChainProfile, parse_chain, problem_of
from remat_gen.ir.errors import GraphError, UsageError
from remat_gen.solver.law.bare_graph import BareGraph
from remat_gen.solver.solve import Solver

NUMBERS: dict[str, list[Any]] = {
    "fw": [3, 5.5, 2],
    "bw": [6, 10, 4, 1],
    "cw": [4, 6, 2, 1],
    "cbw": [4, 9, 7, 1],
    "ftmp": [0, 2, 1],
    "btmp": [3, 0, 1, 0],
}


def test_every_form_is_the_same_chain() -> None:
    columns = [[*NUMBERS[key], *[None] * (4 - len(NUMBERS[key]))] for key in NUMBERS]
    rows = [tuple(row) for row in zip(*columns, strict=True)]
    attributes = ("fweigth", "bweigth", "cweigth", "cbweigth", "fwd_tmp", "bwd_tmp")
    dumped = dict(zip(attributes, NUMBERS.values(), strict=True)) | {"length": 3}
    without_loss = NUMBERS | {"btmp": [3, 0, 1]}
    texts = [json.dumps(p) for p in (NUMBERS, rows, dumped, without_loss)] + [f"# me\n{rows!r}\n"]
    expected = ChainProfile(**{key: tuple(numbers) for key, numbers in NUMBERS.items()})
    assert {parse_chain(text) for text in texts} == {expected}


def test_the_text_of_five_lines_has_no_temporaries() -> None:
    lines = [" ".join(map(str, NUMBERS[key])) for key in ("fw", "bw", "cw", "cbw")]
    read = parse_chain("# a chain\n" + "\n".join(["3", *lines]))
    none = NUMBERS | {"ftmp": [0] * 3, "btmp": [0] * 4}
    assert read == parse_chain(json.dumps(none))


def test_the_plain_step_is_what_rotor_counts() -> None:
    """The peak is in stage 1's backward: x₀, what stages 0 and 1 leave, and two gradients."""
    problem = problem_of(parse_chain(json.dumps(NUMBERS)))
    plain = Solver(problem, "none").plain
    assert plain.time_us == 3 + 5.5 + 2 + 6 + 10 + 4 + 1
    assert plain.peak_bytes == 4 + 9 + 7 + 2 + 6  # backward 2: its workspace, both gradients


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fwtmp": []}, "has an unknown 'fwtmp'"),
        ({"cw": [4, 6, 2]}, r"cw: has 3 entries, not 4 for 3 stages"),
        ({"fw": []}, "fw: holds no stage"),
        ({"fw": "3"}, "fw: expected a list"),
        ({"cw": [4, 6.5, 2, 1]}, r"cw\[1\]: expected a whole number, found 6.5"),
        ({"bw": [6, -1, 4, 1]}, r"bw\[1\]: must be at least 0, is -1"),
        ({"cbw": [4, 5, 7, 1]}, r"cbw\[1\]: holds what a stage makes"),
    ],
)
def test_what_is_none_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        parse_chain(json.dumps(NUMBERS | change))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[(1, 2)]", r"chain: row 0: expected \(fw, bw, cw, cbw, ftmp, btmp\), found"),
        ("[(1, 2", "chain: is no chain profile"),
        ("[x]", "chain: is no JSON"),
        ("[(x, 1, 1, 1, 1, 1)]", "chain: is no chain profile"),
        ("3\n1 1", "chain: is no chain profile: expected five lines"),
        ("2\n1\n1 1\n1 1\n1 1", "chain: fw: has 1 entries for 2 stages"),
        ('{"fw": [1]}', "chain: the file has no 'bw'"),
        (json.dumps(NUMBERS | {"cw": [2**61, 6, 2, 1]}), "more than .* bytes together"),
        ('{"fweigth": [1], "length": 2}', "chain: length: is not the number"),
    ],
)
def test_errors_name_the_file(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "chain"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        read_instance(path)


def test_graphs_are_no_chains(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text('{"v": [0, 1], "args": {"1": [0]}}', encoding="utf-8")
    assert isinstance(read_instance(path), BareGraph)
