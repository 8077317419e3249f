"""Plans are read back as they were written, or refused with the key that is wrong."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remat_gen.ir import coding
from remat_gen.ir.costs import Cost, Smaller
from remat_gen.ir.errors import GraphError, UsageError
from remat_gen.ir.plan import (
    SCHEMA,
    Asked,
    Block,
    Plan,
    PlannedSegment,
    Predicted,
    Solver,
    SourceFile,
    Versions,
    parse_plan,
    plan_text,
    read_plan,
)

_NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
_BYTES = st.integers(0, 2**60)
_TIMES = st.floats(0, 1e12)
_SIZES = st.dictionaries(_NAMES, _BYTES, max_size=3)
_LISTS = st.lists(_NAMES, max_size=30).map(tuple)
_SMALLER = st.builds(Smaller, st.lists(_BYTES, max_size=3).map(tuple), _BYTES)
_COSTS = st.builds(Cost, _TIMES, _BYTES, st.booleans(), st.lists(_SMALLER, max_size=9).map(tuple))

PLANS = st.builds(
    Plan,
    schema=st.just(SCHEMA),
    versions=st.builds(Versions, _NAMES, _NAMES, _NAMES, _NAMES),
    source=st.builds(SourceFile, _NAMES, _NAMES),
    asked=st.builds(
        Asked, _NAMES, st.none() | _NAMES, st.none() | _NAMES, _NAMES, _NAMES, _NAMES, _BYTES
    ),
    device=_NAMES,
    alignment_bytes=st.integers(1, 2**60),
    graph_sha256=_NAMES,
    inputs=st.dictionaries(_NAMES, _NAMES, max_size=3),
    costs=st.dictionaries(_NAMES, _COSTS, max_size=4),
    blocks=st.lists(st.builds(Block, _NAMES, _BYTES, _SIZES, _LISTS), max_size=3).map(tuple),
    schedule=st.lists(st.builds(PlannedSegment, _BYTES, st.booleans(), _LISTS), max_size=3).map(
        tuple
    ),
    solver=st.builds(Solver, _NAMES, st.booleans(), _LISTS, _NAMES, _TIMES),
    predicted=st.builds(Predicted, _BYTES, _BYTES, _TIMES, _BYTES, _TIMES, _BYTES, _BYTES, _NAMES),
)
EXAMPLE = Plan(
    schema=SCHEMA,
    versions=Versions("0.1.0", "2.13.0", "4.15", "0.15"),
    source=SourceFile("model.py", "ab"),
    asked=Asked("remat-gen model.py", None, None, "auto", "rockmate", "60%", 60),
    device="cpu",
    alignment_bytes=1,
    graph_sha256="cd",
    inputs={"x": "float32[2, 4]"},
    costs={"mm": Cost(1.5, 0), "add": Cost(0.5, 8, modelled=True)},
    blocks=(Block("layer", 2, {"mm": 64}, ()),),
    schedule=(PlannedSegment(0, False, ("run mm", "run add", "free mm")),),
    solver=Solver("rockmate", True, ()),
    predicted=Predicted(10, 9, 2.0, 12, 1.5, 1),
)


@given(PLANS)
def test_round_trip(plan: Plan) -> None:
    text = plan_text(plan)
    assert parse_plan(text) == plan
    assert plan_text(parse_plan(text)) == text


def test_the_text_is_for_people_and_diffs() -> None:
    text = plan_text(EXAMPLE)
    assert text.endswith("}\n")
    assert '"mm": [1.5, 0]' in text
    assert '"add": [0.5, 8, true]' in text
    assert '"steps": ["run mm", "run add", "free mm"]' in text
    assert list(json.loads(text)) == sorted(json.loads(text))


def test_a_cost_at_smaller_lengths_stands_on_one_line() -> None:
    cost = Cost(1.5, 8, smaller=(Smaller((1,), 64), Smaller((1, 2), 32)))
    text = plan_text(replace(EXAMPLE, costs={"mm": cost}))
    assert '"mm": [1.5, 8, false, [[[1], 64], [[1, 2], 32]]]' in text
    assert parse_plan(text).costs == {"mm": cost}


def _keys(value: Any, where: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for field in (f for f in fields(value) if f.default is MISSING):
        found.append((*where, field.name))
        if is_dataclass(inner := getattr(value, field.name)):
            found += _keys(inner, (*where, field.name))
    return found


def test_what_has_its_default_is_left_out() -> None:
    assert "status" not in plan_text(EXAMPLE)
    proved = replace(EXAMPLE.solver, status="optimal", lower_bound_us=2.0)
    plan = replace(EXAMPLE, solver=proved)
    assert parse_plan(plan_text(plan)) == plan
    with pytest.raises(GraphError, match="status"):
        parse_plan(plan_text(plan).replace('"optimal"', "1"))


@pytest.mark.parametrize("where", _keys(EXAMPLE), ids=".".join)
def test_every_key_is_needed_and_typed(where: tuple[str, ...]) -> None:
    plain = json.loads(plan_text(EXAMPLE))
    *parents, last = where
    at = plain
    for parent in parents:
        at = at[parent]
    at[last] = [{}]
    with pytest.raises(GraphError, match=last):
        parse_plan(json.dumps(plain))
    del at[last]
    with pytest.raises(GraphError, match=last):
        parse_plan(json.dumps(plain))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "has schema 2, this remat-gen reads 1"),
        ({"extra": 1}, "has an unknown 'extra'"),
        ({"costs": {"mm": [1.0]}}, r"costs\.mm: expected a row"),
        ({"costs": {"mm": ["fast", 0]}}, r"costs\.mm\.time_us: expected a number, found \"fast\""),
        ({"alignment_bytes": True}, "alignment_bytes: expected a whole number, found true"),
        ({"alignment_bytes": 0}, "alignment_bytes is 0: it is 1 at least"),
        ({"costs": {"mm": [-1.0, 0]}}, r"costs\.mm: no operation takes -1.0 us"),
        ({"schedule": [{"block": 0}]}, r"schedule\[0\] has no 'backward'"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, object], message: str) -> None:
    plain = json.loads(plan_text(EXAMPLE)) | change
    with pytest.raises(GraphError, match=message):
        parse_plan(json.dumps(plain))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"schema": NaN}', "[" * 100_000, '{"time": 1e999}']
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(GraphError):
        parse_plan(text)


def test_infinity_is_no_number() -> None:
    text = plan_text(EXAMPLE).replace("[1.5, 0]", "[1e999, 0]")
    with pytest.raises(GraphError, match="expected a number"):
        parse_plan(text)


def test_files_that_are_no_plans(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such plan"):
        read_plan(tmp_path / "missing.json")
    (tmp_path / "odd.json").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_plan(tmp_path / "odd.json")
    with pytest.raises(UsageError, match="cannot be read"):
        read_plan(tmp_path)


def test_nothing_that_is_no_number_is_written() -> None:
    with pytest.raises(ValueError):
        coding.dump(Cost(float("nan"), 0))
