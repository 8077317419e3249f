"""Plain values that forward puts on modules and that follow from lengths, in every step."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
import torch
from pairs import make_pair_of
from sources import model_source
from steps import assert_right, verified
from torch import nn

import remat_gen

VALUES = {
    "rows": "x.shape[0]",
    "product": "2 * x.shape[0] - 1",
    "quotient": "x.shape[0] // 2",
    "rest": "(x.shape[0] % 4, x.shape[0] % 8)",
    "float": "x.shape[0] / 3",
    "mean": "1 / len(x)",
    "ceiling": "math.ceil(x.shape[0] / 4)",
    "least": "max(x.size(0), 4)",
    "most": "min(4, x.size(0))",
    "numbers": "x.numel()",
    "shape": "x.shape",
    "shape of another": "torch.cat([y, y]).shape",
    "kind of number": "x.shape[0] if isinstance(x.shape[0], int) else None",
    "pair": "(x.shape[0], 'rows', x.shape[1:])",
}
PLACES = {
    "attribute": "self.kept = {}",
    "of a dict": "self.found['rows'] = {}",
    "of a list": "self.listed.clear()\nself.listed.append({})",
    "beside a tensor": "self.kept = (y.detach().mean(), {})",
}
UNSAID = {"comparison": "x.shape[0] > 4", "several": "{x.shape[0]}"}


def source(value: str, place: str = "self.kept = {}") -> str:
    init = "self.kept, self.found, self.listed = None, {}, []"
    keep = place.replace("{}", value)
    text = model_source(f"y = self.head(self.body(x))\n{keep}\nreturn y", init=init)
    return text.replace("\n\nclass Model", "\n\nimport math\n\n\nclass Model")


def left(model: nn.Module, x: torch.Tensor) -> str:
    torch.manual_seed(3)
    model(x).square().mean().backward()
    found = (getattr(model, name) for name in ("kept", "found", "listed"))
    return repr([(value, type(value)) for value in found])


@pytest.mark.parametrize("value", VALUES)
def test_it_is_what_eager_puts_there(value: str) -> None:
    """A planned step left None there, whatever followed from a length."""
    same_as_eager(source(VALUES[value]))


@pytest.mark.parametrize("place", PLACES)
def test_wherever_it_stands(place: str) -> None:
    same_as_eager(source("x.shape[0]", PLACES[place]))


def same_as_eager(text: str) -> None:
    eager, planned = make_pair_of(text, "lowest", "per-layer").models()
    for rows in (6, 4, 1, 5):
        x = torch.randn(rows, 8)
        assert left(planned, x) == left(eager, x)


@pytest.mark.parametrize("value", UNSAID)
def test_what_no_length_says_is_named(value: str, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(source(UNSAID[value]), encoding="utf-8")
    assert "kept" in remat_gen.generate(path, budget="100%", device="cpu").unset


def test_verify_compares_them() -> None:
    """A step of the original that put the same before it made nothing of it new."""
    pair = make_pair_of(source("x.shape", "self.kept, self.found['rows'] = {}, 1"), "100%", "none")
    original, planned = pair.models()
    args, kwargs = pair.inputs()
    original(*args)
    row = partial(verified, original, planned, args, kwargs, "attributes")
    assert row()[0]
    hook = planned.register_forward_hook(lambda m, *_: setattr(m, "kept", torch.Size((6, 9))))
    ok, detail = row()
    hook.remove()
    assert not ok
    assert "kept" in detail


MADE_ONCE = {
    "where it is not in a dict": (
        "if 'gain' not in self.cfg:\n    self.cfg['gain'] = 4.0\n",
        "self.cfg['gain']",
        "cfg[gain]",
    ),
    "by setdefault": ("", "self.cfg.setdefault('gain', 4.0)", "cfg[gain]"),
    "where a dict has none": (
        "self.cfg['gain'] = self.cfg.get('gain', 4.0)\n",
        "self.cfg['gain']",
        "cfg[gain]",
    ),
    "of an object": (
        "if not hasattr(self.other, 'gain'):\n    self.other.gain = 4.0\n",
        "self.other.gain",
        "other.gain",
    ),
}


@pytest.mark.parametrize("case", MADE_ONCE)
def test_what_is_made_where_it_is_missing_is_compared(case: str) -> None:
    """Set by the user it is read: a planned step went on with its own, and wrote that over it."""
    forward, value, path = MADE_ONCE[case]
    text = model_source(
        f"{forward}return self.head(self.body(x)) * {value}",
        init="self.cfg = {}\nself.other = Other()",
    ).replace("\n\nclass Model", "\n\nclass Other:\n    pass\n\n\nclass Model")
    pair = make_pair_of(text, "lowest", "per-layer")
    assert_right(pair)
    args, _ = pair.inputs()
    for steps in (0, 2):
        _, model = pair.models()
        for _ in range(steps):
            model(*args)
        if path == "cfg[gain]":
            assert model.cfg == ({"gain": 4.0} if steps else {})
            model.cfg["gain"] = 9.0
        else:
            model.other.gain = 9.0
        with pytest.raises(ValueError, match=rf"{re.escape(path)} is 9\.0, planned for not set"):
            model(*args)


def test_what_is_written_before_it_is_read_may_be_anything() -> None:
    text = model_source(
        "self.cfg['gain'] = 4.0\nreturn self.head(self.body(x)) * self.cfg['gain']",
        init="self.cfg = {'gain': 3.0}",
    )
    pair = make_pair_of(text, "lowest", "per-layer")
    assert_right(pair)
    _, model = pair.models()
    args, _ = pair.inputs()
    for gain in (1.0, 2.0):
        model.cfg["gain"] = gain
        model(*args)
        assert model.cfg == {"gain": 4.0}
