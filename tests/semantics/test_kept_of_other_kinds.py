"""What forward keeps on modules beside tensors, dicts and lists: pairs, shapes, dataclasses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from pairs import make_pair_of
from sources import model_source
from torch import nn

import remat_gen
from remat_gen.ir.errors import TraceError

HEAD = """
import dataclasses
from collections import OrderedDict, defaultdict, namedtuple
State = namedtuple("State", "mean top")
@dataclasses.dataclass(frozen=True)
class Told:
    mean: Tensor
    rest: tuple
"""
MEAN, TOP = "y.detach().mean()", "y.detach().amax()"
KINDS = {
    "pair": f"self.kept = ({MEAN}, {TOP})",
    "pair with a number": f"self.kept = ({MEAN}, 3)",
    "one": f"self.kept = ({MEAN},)",
    "with gradient": "self.kept = (y.mean(), y.amax())",
    "namedtuple": f"self.kept = State({MEAN}, {TOP})",
    "dataclass": f'self.kept = Told({MEAN}, ({TOP}, "top"))',
    "ordered dict": f"self.kept = OrderedDict(mean={MEAN}, top={TOP})",
    "pairs in a dict": f'self.kept = {{"y": ({MEAN}, {TOP})}}',
    "pairs in a list": f"self.kept.clear()\nself.kept.append(({MEAN}, {TOP}))",
    "defaultdict": f'self.kept.clear()\nself.kept["y"].append({MEAN})',
    "ordered dict that stays": f'self.kept["y"] = {MEAN}',
    "plain values in a list": "self.kept.clear()\nself.kept.insert(0, 1.5)\nself.kept.append(None)",
    "one that is put and taken": "self.kept = 1.5\ndel self.kept\nself.kept = 2",
    "size": "self.kept = x.shape[1:]",
    "dtype": "self.kept = y.dtype",
    "device": "self.kept = x.device",
    "infinity": 'self.kept = (float("-inf"), None)',
}
STAYS = {
    "pairs in a list": "[]",
    "plain values in a list": "[]",
    "defaultdict": "defaultdict(list)",
    "ordered dict that stays": "OrderedDict()",
}


def source(keep: str, first: str = "None") -> str:
    forward = f"y = self.head(self.body(x))\n{keep}\nreturn y"
    text = model_source(forward, init=f"self.kept = {first}")
    return text.replace("\n\nclass Model", f"\n{HEAD}\n\nclass Model")


def left(model: nn.Module, x: torch.Tensor) -> str:
    """Run a step; say what it leaves, with the types of all."""
    torch.manual_seed(3)
    model(x).square().mean().backward()
    return re.sub(r"grad_fn=<\w+>", "with a gradient", repr(model.kept))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_what_eager_leaves(kind: str) -> None:
    original, planned = make_pair_of(
        source(KINDS[kind], STAYS.get(kind, "None")), "lowest", "per-layer"
    ).models()
    for rows in (6, 4):
        x = torch.randn(rows, 8)
        assert left(original, x) == left(planned, x) != "None"


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("pair", "self.kept = (*self.kept,)"),
        ("namedtuple", "self.kept = State(*self.kept)"),
        ("pairs in a list", "self.kept[:] = [(*self.kept[0],)]"),
        ("dataclass", 'self.kept = Told(mean=self.kept["mean"], rest=(*self.kept["rest"],))'),
    ],
)
def test_how_it_reads(kind: str, line: str) -> None:
    text = make_pair_of(source(KINDS[kind], STAYS.get(kind, "None")), "lowest", "per-layer").text
    assert f"        {line}\n" in text


NOT_KEPT = {
    "a function": "self.kept = lambda: 3",
    "an object": "self.kept = type('Seen', (), {'mean': y.detach().mean()})()",
    "more than small tensors": "self.kept = (x.detach() + y.new_zeros(5000)[0], y.new_zeros(5000))",
}


@pytest.mark.parametrize("kind", NOT_KEPT)
def test_the_rest_is_named(kind: str, tmp_path: Path) -> None:
    """Nothing was said of what is no tensor, dict or list: it stayed as it was."""
    path = tmp_path / "model.py"
    path.write_text(source(NOT_KEPT[kind]), encoding="utf-8")
    generated = remat_gen.generate(path, budget="100%", device="cpu")
    assert "kept" in generated.unset


@pytest.mark.parametrize("zeros", ["torch.zeros(4), torch.zeros(4)", "None, None"])
def test_a_pair_that_the_next_step_goes_on_from_is_refused(zeros: str, tmp_path: Path) -> None:
    """The state of an RNN: comparing two of them ended in a RuntimeError of torch."""
    path = tmp_path / "model.py"
    forward = (
        f"h, c = self.kept or ({zeros})\n"
        "y = self.head(self.body(x))\n"
        "y = y if h is None else y + h + c\n"
        "self.kept = y.detach().mean(0), y.detach().amax(0)\n"
        "return y"
    )
    path.write_text(model_source(forward, init="self.kept = None"), encoding="utf-8")
    with pytest.raises(TraceError, match=r"forward \w+ .*self\.kept"):
        remat_gen.generate(path, budget="100%", device="cpu")


def test_an_attribute_that_is_put_and_taken_is_not_there(tmp_path: Path) -> None:
    """It was left there: only what is put was heard of."""
    original, planned = make_pair_of(
        source("self.other = 1.5\ndel self.other"), "lowest", "per-layer"
    ).models()
    x = torch.randn(6, 8)
    for model in (original, planned):
        model(x)
        assert not hasattr(model, "other")


def test_a_list_of_the_users_own_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    text = source("self.kept.clear()\nself.kept.append(y.detach().mean())", "Losses()")
    path.write_text(text.replace("State =", "class Losses(list): pass\nState =", 1), "utf-8")
    with pytest.raises(TraceError, match=r"forward changes self\.kept\[0\]"):
        remat_gen.generate(path, budget="100%", device="cpu")


def test_an_ordered_dict_that_is_returned_as_well() -> None:
    """What the model holds is put back behind a run: what was returned is no part of that."""
    text = source('self.kept["y"] = y.detach().mean()', "OrderedDict()")
    text = text.replace("return y\n", "return y, self.kept\n")
    for model in make_pair_of(text, "lowest", "per-layer").models():
        torch.manual_seed(3)
        _, told = model(torch.ones(6, 8))
        assert (type(told).__name__, [*told]) == ("OrderedDict", ["y"])
