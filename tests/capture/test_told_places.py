"""Whose line is told: the user's own that led there, then the library's, and what to do here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tracing import line_of, source, traced

from remat_gen.capture.load.load import load
from remat_gen.capture.lower.value_checks import conditions_of
from remat_gen.capture.refuse.places import ROUND_IT, Place, place_of
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.ir.errors import TraceError

LIBRARY = """
import torch
from torch import nn


class Scaled(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return y * int(y.max())


class Shaped(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return y[y > 0]


class Checked(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        if not y.isfinite().all():
            raise ValueError("overflow")
        return y
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "scaling_lib.py").write_text(LIBRARY, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    return LIBRARY


def text_of(kind: str) -> str:
    return source(
        f"self.lin = scaling_lib.{kind}(8, 8)",
        "x = x * 2\nreturn self.lin(x).sum()",
        before="import scaling_lib\n",
    )


@pytest.mark.parametrize(("kind", "part"), [("Scaled", "int(y.max"), ("Shaped", "y[y > 0]")])
def test_nobody_is_told_to_edit_a_library(
    tmp_path: Path, library: str, kind: str, part: str
) -> None:
    text = text_of(kind)
    with pytest.raises(TraceError) as caught:
        traced(tmp_path, text)
    own, inside = line_of(text, "return self.lin(x)"), line_of(library, part)
    message = str(caught.value)
    assert message.startswith(f"net.py:{own} (in scaling_lib.py:{inside}): the model cannot be")
    assert message.endswith(ROUND_IT)
    assert "keep it a tensor" not in message


def test_a_condition_of_a_librarys_has_both_lines(tmp_path: Path, library: str) -> None:
    text = text_of("Checked")
    own, inside = line_of(text, "return self.lin(x)"), line_of(library, "if not y.isfinite")
    (told,) = conditions_of(traced(tmp_path, text).graph)
    assert told.startswith(f"net.py:{own} (in scaling_lib.py:{inside}) return self.lin(x)")


def test_the_own_line_is_the_innermost() -> None:
    frames = [
        ("<string>", 1),
        ("/usr/lib/site-packages/inner.py", 5),
        ("/home/me/block.py", 7),
        ("/usr/lib/site-packages/outer.py", 9),
        ("/home/me/net.py", 11),
    ]
    assert place_of(frames) == Place("block.py:7", "inner.py:5")
    assert str(place_of(frames[1:2])) == "inner.py:5"
    assert str(place_of(frames[2:])) == "block.py:7"


KEEPS = """
import random

import torch
from torch import nn


class Kept(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.seen = {}
        self.steps = 0

    def forward(self, x):
        self.steps += 0
        y = super().forward(x)
        self.seen[len(self.seen)] = y
        return y


class Counted(Kept):
    def forward(self, x):
        self.steps = self.steps + 1
        return nn.Linear.forward(self, x) * self.steps


class Drawn(nn.Linear):
    def forward(self, x):
        scale = 2 if random.random() < 2 else 3
        return super().forward(x) * scale
"""
DONE = {
    "Kept": "self.seen[len",
    "Counted": "self.steps = self.steps + 1",
    "Drawn": "random.random(",
}


@pytest.mark.parametrize(("kind", "part"), DONE.items(), ids=DONE)
def test_what_forward_does_has_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, part: str
) -> None:
    """In a library's code, and in the user's own, who is told what to write instead."""
    (tmp_path / "site-packages").mkdir()
    for folder, message in (
        (tmp_path / "site-packages", r"net\.py:{own} \(in keeping_lib\.py:{at}\): forward .*"),
        (tmp_path, r"keeping_own\.py:{at}: forward .*: (make|draw) .*"),
    ):
        library = "keeping_lib" if folder.name == "site-packages" else "keeping_own"
        (folder / f"{library}.py").write_text(KEEPS, encoding="utf-8")
        monkeypatch.syspath_prepend(folder)
        before = f"import {library}\n"
        text = source(
            f"self.lin = {library}.{kind}(8, 8)", "return self.lin(x).sum()", before=before
        )
        with pytest.raises(TraceError) as caught:
            traced(tmp_path, text)
        own, at = line_of(text, "return self.lin(x)"), line_of(KEEPS, part)
        assert re.match(message.format(own=own, at=at), str(caught.value)), caught.value
        assert str(caught.value).endswith(ROUND_IT) == (library == "keeping_lib")


def test_a_librarys_own_model_is_told_by_the_line_that_builds_it(
    tmp_path: Path, library: str
) -> None:
    path = tmp_path / "net.py"
    path.write_text(BUILT, encoding="utf-8")
    with pytest.raises(TraceError, match=r"^net\.py:7 \(in scaling_lib\.py:9\): the model cannot"):
        trace_loaded(load(path, device="cpu"))


BUILT = """
import torch
import scaling_lib


def build_model():
    return scaling_lib.Scaled(8, 8)


def example_inputs():
    return (torch.randn(4, 8),)
"""
