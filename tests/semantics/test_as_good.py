"""A configuration read from a file: lists for tuples, 1 for 1.0, a cache that is switched off.

Where forward does the same with them, a planned step goes on; else it says what changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pairs import Pair, make_pair_of
from sources import model_source
from steps import assert_right

_CONFIG = """\
        self.sizes, self.scale = (4, 2), 1.0
        self.config = SimpleNamespace(use_cache=True, blocks={'shape': (-1, 8), 'gain': 2.0})
"""


def _source(forward: str) -> str:
    body = (
        f"{forward}\n"
        "x = x.reshape(-1, *self.sizes).flatten(1) * self.config.blocks['gain']\n"
        "return self.head(self.body(x.reshape(self.config.blocks['shape']))).square().mean()"
    )
    return "from types import SimpleNamespace\n" + model_source(body, init=_CONFIG)


def _listed(model: Any) -> None:
    model.sizes = [*model.sizes]
    model.config.blocks["shape"] = [-1, 8]


def _whole(model: Any) -> None:
    model.scale, model.config.blocks["gain"] = 1, 2


def _switched(model: Any) -> None:
    model.config.use_cache = False


_CHANGES = {"list": _listed, "number": _whole, "cache": _switched}


@pytest.fixture(scope="module")
def reading() -> Pair:
    return make_pair_of(
        _source("kept = [] if self.config.use_cache else None\nx = x * self.scale + 1.0")
    )


@pytest.mark.parametrize("kind", _CHANGES)
@pytest.mark.parametrize("behind", [False, True])
def test_what_does_as_well_is_taken(reading: Pair, kind: str, behind: bool) -> None:
    found = []
    for model in reading.models():
        if behind:
            model(*reading.inputs()[0]).backward()
            model.zero_grad()
        _CHANGES[kind](model)
        torch.manual_seed(3)
        loss = model(*reading.inputs()[0])
        loss.backward()
        found.append([loss.detach(), *(p.grad for p in model.parameters())])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_the_table_says_so_and_the_file_is_current(reading: Pair) -> None:
    rows = reading.text.partition("ALSO: ")[2].partition("\n}")[0]
    assert '"config.use_cache": "False"' in rows and '"sizes": "list [4, 2]"' in rows
    assert_right(reading)


@pytest.mark.parametrize(
    ("forward", "kind", "says"),
    [
        ("x = x * (2 if type(self.sizes) is tuple else 3)", "list", r" is list \[-1, 8\], "),
        ("x = x + (x > 0).long().mul(self.scale)[0].dtype.itemsize", "number", r"\[gain\] is 2, "),
        ("x = x * torch.tensor(self.scale)", "number", r"\[gain\] is 2, "),
        ("x = x * (2 if self.config.use_cache else 3)", "cache", "use_cache is False"),
    ],
)
def test_kinds_of_which_one_makes_a_difference_are_named(
    forward: str, kind: str, says: str
) -> None:
    pair = make_pair_of(_source(f"{forward}\nkept = self.config.use_cache, self.scale"))
    others: list[Callable[[Any], None]] = [c for k, c in _CHANGES.items() if k != kind]
    model = pair.models()[1]
    for change in others:
        change(model)
    model(*pair.inputs()[0]).backward()
    _CHANGES[kind](model)
    with pytest.raises(ValueError, match=says):
        model(*pair.inputs()[0])


def test_what_forward_returns_of_it_is_the_same() -> None:
    forward = "return self.head(self.body(x)).square().mean(), self.scale"
    pair = make_pair_of(model_source(forward, init="        self.scale = 1.0"))
    model = pair.models()[1]
    model(*pair.inputs()[0])[0].backward()
    model.scale = 1
    with pytest.raises(ValueError, match=r"scale is 1, planned for 1\.0"):
        model(*pair.inputs()[0])
