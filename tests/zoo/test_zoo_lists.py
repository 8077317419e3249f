"""The lists of the zoo: files that Python reads, no name twice, as many as were promised."""

from __future__ import annotations

import ast
from collections import Counter

import pytest
from record import Record, Status
from run import PARTS, wanted
from subject import Subject, kinds_in_turn

EVERY = [subject for part in PARTS.values() for subject in part]


@pytest.mark.parametrize("subject", EVERY, ids=lambda subject: subject.key)
def test_each_file_defines_a_model_and_its_inputs(subject: Subject) -> None:
    tree = ast.parse(subject.text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert functions >= {"build_model", "example_inputs"}


def test_no_file_is_written_twice() -> None:
    files = Counter((subject.library, subject.file_name) for subject in EVERY)
    assert [file for file, count in files.items() if count > 1] == []


def test_there_are_as_many_as_were_promised() -> None:
    kinds = {subject.kind for subject in PARTS["transformers"]}
    assert len(PARTS["timm"]) >= 40
    assert len(PARTS["transformers"]) >= 100
    assert kinds >= {"decoder", "encoder", "encoder-decoder", "vision", "audio"}
    assert kinds >= {"mixture of experts", "state space"}


def test_two_of_each_kind_come_first() -> None:
    letters = tuple(Subject("x", f"{kind}{i}", kind, "", "", "") for i in range(3) for kind in "ab")
    order = [subject.name for subject in kinds_in_turn(letters)]
    assert order == ["a0", "b0", "a1", "b1", "a2", "b2"]
    lopsided = (letters[0], letters[2], letters[4], letters[1])
    assert [subject.name for subject in kinds_in_turn(lopsided)] == ["a0", "a1", "b0", "a2"]


def test_what_ran_is_not_run_again_unless_asked() -> None:
    good, bad, *_ = (subject.key for subject in PARTS["torch"])
    done = {
        good: Record(good, "", Status.OK, "rotor"),
        bad: Record(bad, "", Status.FAILED, "rotor"),
    }
    open_keys = {subject.key for subject in wanted(["torch"], "", done, "")}
    assert not open_keys & {good, bad}
    again = {subject.key for subject in wanted(["torch"], "", done, "failed")}
    assert again - open_keys == {bad}
