"""What classes of the file hold and forward reads there: objects, other classes, the one instance.

And functions of a library that a name of the file stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pairs import Pair, make_pair_of
from sources import model_source

PRELUDE = """
import logging
LOG = logging.getLogger(__name__)
ACT = torch.tanh

class Config:
    def __init__(self): self.rate = 1.5

class Registry:
    config = Config()
    class Train:
        rate, table = 0.5, torch.ones(4)

class Single:
    _instance = None
    @classmethod
    def get(cls): return cls._instance

Single._instance = Config()
"""
FORWARD = """
y = self.head(self.body(x)) * Registry.config.rate * Registry.Train.rate * Single.get().rate
logging.getLogger(__name__).debug("a step")
return ACT(y * Registry.Train.table * self.Options.Inner.rate)
"""
CHANGES: dict[str, tuple[Callable[[Any], tuple[object, str]], Any, str]] = {
    "Registry.config.rate": (lambda file: (file.Registry.config, "rate"), 9, "9"),
    "Single._instance.rate": (lambda file: (file.Single.get(), "rate"), 9, "9"),
    "Registry.Train.rate": (lambda file: (file.Registry.Train, "rate"), 9, "9"),
    "Registry.Train.table": (
        lambda file: (file.Registry.Train, "table"),
        torch.zeros(4),
        "float32",
    ),
    "Options.Inner.rate": (lambda file: (file.Model.Options.Inner, "rate"), 9, "9"),
    "ACT": (lambda file: (file, "ACT"), torch.sin, "function"),
}


@pytest.fixture(scope="module")
def pair() -> Pair:
    text = model_source(FORWARD, prelude=PRELUDE)
    options = (
        "class Model(nn.Module):\n    class Options:\n        class Inner:\n            rate = 2\n"
    )
    return make_pair_of(text.replace("class Model(nn.Module):", options, 1), "1GB", "per-layer")


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_named(
    pair: Pair, name: str, later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the first step of a process, and on later ones: both were silent."""
    place, value, now = CHANGES[name]
    (args, _), model = pair.inputs(), pair.models()[1]
    if later:
        model(*args)
    monkeypatch.setattr(*place(pair.planned), value)
    with pytest.raises(ValueError, match=r"planned for") as error:
        model(*args)
    assert f"{name} is {now}" in str(error.value)


def test_the_name_of_the_file_is_none_of_it(pair: Pair) -> None:
    """A logger's `__name__` was compared with that of the file it was planned from."""
    args, _ = pair.inputs()
    results = []
    for model in pair.models():
        torch.manual_seed(3)
        results.append(model(*args))
    assert torch.equal(*results)
    assert "__name__" not in pair.text.partition("ASSUMED")[2].partition("HOOKS")[0]
