"""A small change of the model is a small change of the file; the hash seed changes nothing."""

from __future__ import annotations

import ast
import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from emitting import HEAD, assert_bitwise, at_share, emit
from test_golden import GOLDEN

SOURCE = (GOLDEN / "tiny.py").read_text(encoding="utf-8")
SCRIPT = """
import sys
from pathlib import Path
from emitting import at_share, emit
folder, *models = map(Path, sys.argv[1:])
for model in models:
    source = model.read_text(encoding="utf-8")
    sys.stdout.write(emit(folder, source, at_share("rockmate", 0.3)).text)
"""

SETS = """
import enum


class Kind(enum.Enum):
    NAMES = frozenset(["alpha", "beta", "gamma"])
    PAIR = ("one", frozenset(["two", "three", "four"]))


LEFT_OUT = {"delta", "epsilon", "zeta"}


class Held:
    def __init__(self):
        self.names = {"alpha", "beta", "gamma"}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.names = {"alpha", "beta", "gamma"}
        self.listed = [{"alpha", "beta", "gamma"}, {("x", 1), ("y", 2), ("z", 3)}]
        self.by_key = {"one": {"alpha", "beta", "gamma"}, "two": 2}
        self.frozen = (frozenset(["alpha", "beta", "gamma"]), 3)
        self.of_sets = {frozenset(["a", "b", "c"]), frozenset(["b", "c", "d"])}
        self.keyed = {frozenset(["alpha", "beta", "gamma"]): 0.5}
        self.held, self.kind = Held(), Kind.NAMES
        self.kinds = {Kind.NAMES, Kind.PAIR}

    def forward(self, x, flags=frozenset(["p", "q", "r"]), more=((), {"u", "v"}), kind=Kind.PAIR):
        kept = len(self.names - LEFT_OUT) + len(self.listed[0]) + len(self.by_key["one"])
        kept += len(self.frozen[0]) + len(self.of_sets) + len(self.keyed) + len(self.listed[1])
        kept += len(self.held.names) + len(self.kind.value) + len(self.kinds)
        kept += len(flags) + len(more[1]) + len(kind.value)
        return self.second(F.relu(self.first(x))).square().mean() * kept


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(4, 8),)
"""


def changed(old: str, new: str) -> list[str]:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
    return [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def without(text: str, class_name: str) -> str:
    """Return a text without a class."""
    tree = ast.parse(text)
    tree.body = [n for n in tree.body if getattr(n, "name", "") != class_name]
    return re.sub(r"ModuleList\[\d+\]", "ModuleList", ast.unparse(tree))


def test_more_layers_touch_the_table_and_its_own_lines(tmp_path: Path) -> None:
    """The last layer has a class of its own, which more layers do not rename; its title says where.

    A tied weight's gradient reaches over all layers, and its distance would change.
    """
    untied = SOURCE.replace("self.head.weight = self.wte.weight", "pass")
    old = emit(tmp_path, untied.replace("layers: int = 2", "layers: int = 6")).text
    new = emit(tmp_path, untied.replace("layers: int = 2", "layers: int = 8")).text
    assert without(old, "Tiny").replace("h.5:", "h.7:") == without(new, "Tiny")
    assert 0 < len(changed(old, new)) < 30


def test_no_name_counts(tmp_path: Path) -> None:
    """A name ends in a number only where the user's own do; `after_2` is two blocks on."""
    text = emit(tmp_path, SOURCE, at_share("rockmate", 0.3)).text
    numbered = {name for name in assigned(text) if re.search(r"_\d+$", name)}
    assert numbered
    users = {name for name in numbered if not re.fullmatch(r"after_\d", name)}
    assert all(name.endswith(("ln_1", "ln_2")) for name in users)


def assigned(text: str) -> set[str]:
    stored = [
        n for n in ast.walk(ast.parse(text)) if isinstance(getattr(n, "ctx", None), ast.Store)
    ]
    names = {n.id for n in stored if isinstance(n, ast.Name)}
    return names | {n.attr for n in stored if isinstance(n, ast.Attribute)}


def test_an_inserted_line_above_the_model_moves_only_line_numbers(tmp_path: Path) -> None:
    old = emit(tmp_path, SOURCE).text
    new = emit(tmp_path, SOURCE.replace("class Layer", "# one more line\nclass Layer", 1)).text
    code = [line for line in changed(old, new) if not line[1:].lstrip().startswith("#")]
    assert code == []


def test_the_same_bytes_under_any_hash_seed(tmp_path: Path) -> None:
    models = [tmp_path / "tiny.py", tmp_path / "sets.py"]
    for model, source in zip(models, (SOURCE, HEAD + SETS), strict=True):
        model.write_text(source)
    texts = set()
    for seed in ("0", "1", "2"):
        environment = os.environ | {
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[:2])),
        }
        command = [sys.executable, "-c", SCRIPT, str(tmp_path), *map(str, models)]
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        texts.add(done.stdout)
    assert len(texts) == 1


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_tiny_model_is_bitwise_as_eager(tmp_path: Path, share: float) -> None:
    assert_bitwise(emit(tmp_path, SOURCE, at_share("rockmate", share)))


def test_an_argument_that_is_a_set_is_compared_by_its_members(tmp_path: Path) -> None:
    made = emit(tmp_path, HEAD + SETS, at_share("rockmate", 0.5))
    assert_bitwise(made)
    model, x = made.planned.model, torch.randn(4, 8)
    model(x, frozenset(["r", "q", "p"]), ((), {"v", "u"}))
    for others in ({"p", "q", "r"}, frozenset(["p", "q"]), ["p", "q", "r"], "pqr", None):
        with pytest.raises(ValueError, match=r"flags is .*, planned for .*frozenset"):
            model(x, others)
    with pytest.raises(ValueError, match=r"more is .*, planned for .*set"):
        model(x, more=((), {"u", "w"}))
    with pytest.raises(ValueError, match=r"kind is .*, planned for .*PAIR"):
        model(x, kind=model.kind)
