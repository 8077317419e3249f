"""What forward reads in ways that are easily overlooked, changed since planning."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pairs import Pair, make_pair
from steps import assert_same, run_steps
from test_changes import put

Patch = pytest.MonkeyPatch
Change = Callable[[Any, Any, Patch], object]


@pytest.fixture(scope="module")
def rarely() -> Pair:
    return make_pair("reads_rarely", "1GB", "per-layer")


def test_it_is_right(rarely: Pair) -> None:
    assert_same(*(run_steps(model, rarely) for model in rarely.models()))


# a change of the model or of its file, and what is said: the path, the new value, the old one
CHANGES: dict[str, tuple[Change, str]] = {
    "vars(self)": (
        lambda m, f, p: setattr(m, "direct", 9.0),
        r"direct is 9\.0, planned for 1\.5",
    ),
    "self.__dict__": (
        lambda m, f, p: setattr(m, "looked_up", 9.0),
        r"looked_up is 9\.0, planned for 0\.75",
    ),
    "self.__dict__, gone": (
        lambda m, f, p: delattr(m, "looked_up"),
        r"looked_up is not set, planned for 0\.75",
    ),
    "cls of the model's class": (
        lambda m, f, p: p.setattr(f.ReadsRarely, "rate", 9.0),
        r"__class__\.rate is 9\.0, planned for 0\.5",
    ),
    "super().rate": (
        lambda m, f, p: p.setattr(f.Base, "rate", 9.0),
        r"Base\.rate is 9\.0, planned for 0\.25",
    ),
    "super().forward": (
        lambda m, f, p: p.setattr(f.Base, "forward", lambda _, x: x),
        r"Base\.forward is function \S*<lambda>, planned for function Base\.forward",
    ),
    "default of a base's forward": (
        lambda m, f, p: put(f.Base.forward.__defaults__[0], 0, 9.0),
        r"Base\.forward\.__defaults__ is tuple \[list \[9\.0\]\], planned for tuple \[list \[1\.5",
    ),
    "list of a decorator around a layer's forward": (
        lambda m, f, p: put(f.Layer.forward.__closure__[1].cell_contents, 0, 9.0),
        r"layers\.0\.forward\.__closure__\[1\]\.cell_contents is list \[9\.0\], planned for list",
    ),
    "object of a bound method": (
        lambda m, f, p: setattr(m.add.__self__, "by", 9.0),
        r"add\.__self__\.by is 9\.0, planned for 0\.5",
    ),
    "dict of a bound get": (
        lambda m, f, p: m.get.__self__.update(scale=9.0),
        r"get\.__self__ is dict \{'scale': 9\.0, .*planned for dict \{'scale': 1\.25",
    ),
    "method of an object": (
        lambda m, f, p: setattr(m.shift, "add", torch.abs),
        r"shift\.add is function \S*abs, planned for function Shift\.add",
    ),
    "a distribution's scale": (
        lambda m, f, p: m.prior.scale.fill_(3.0),
        r"prior\.scale is float32\[8\] \[3\.0, .*planned for float32\[8\] \[2\.0",
    ),
    "a distribution's mean, another": (
        lambda m, f, p: setattr(m.prior, "loc", torch.ones(8)),
        r"prior\.loc is float32\[8\] \[1\.0, .*planned for float32\[8\] \[0\.0",
    ),
    "read in backward alone": (
        lambda m, f, p: p.setattr(f, "IN_BACKWARD", 9.0),
        r"IN_BACKWARD is 9\.0, planned for 2\.0",
    ),
    "a method that torch wraps": (
        lambda m, f, p: setattr(m, "with_gradient", lambda x: x),
        r"with_gradient is function <lambda>, planned for function \w+\.with_gradient",
    ),
    "backward of an autograd function": (
        lambda m, f, p: p.setattr(f.Reversed, "backward", staticmethod(lambda ctx, d: d)),
        r"Reversed\.backward is function <lambda>, planned for function Reversed\.backward",
    ),
    "read by a tensor's hook": (
        lambda m, f, p: setattr(m, "clip", 9.0),
        r"clip is 9\.0, planned for 0\.5",
    ),
    "read by a function with a cache": (
        lambda m, f, p: p.setattr(f, "OF_A_CACHE", 9.0),
        r"OF_A_CACHE is 9\.0, planned for 1\.25",
    ),
    "argument of a function with a cache": (
        lambda m, f, p: p.setattr(f, "WIDTH", 1),
        r"WIDTH is 1, planned for 8",
    ),
    "another function with a cache": (
        lambda m, f, p: p.setattr(f, "ramp", torch.ones),
        r"ramp is function \S*ones, planned for function ramp",
    ),
    "dropout in a plain list": (
        lambda m, f, p: setattr(m.plain[1], "p", 0.5),
        r"plain\[1\]\.p is 0\.5, planned for 0\.25",
    ),
    "mode of a layer in a plain list": (
        lambda m, f, p: m.plain[0].train(),
        r"plain\[0\]\.training is True, planned for False",
    ),
    "buffer of a layer in a plain list": (
        lambda m, f, p: m.plain[0].running_var.fill_(4.0),
        r"plain\[0\]\.running_var is float32\[8\] \[4\.0, .*planned for float32\[8\] \[1\.0",
    ),
    "a frozen dataclass": (
        lambda m, f, p: setattr(m, "frozen", f.Frozen(scale=9.0)),
        r"frozen\.scale is 9\.0, planned for 1\.5",
    ),
    "a fraction": (
        lambda m, f, p: setattr(m, "fraction", type(m.fraction)(1, 2)),
        r"fraction is Fraction 1/2, planned for Fraction 3/2",
    ),
    "what a cached property is made of": (
        lambda m, f, p: m.made.parts.append(1.0),
        r"made\.parts is list \[1\.0, 0\.5, 1\.0\], planned for list \[1\.0, 0\.5\]",
    ),
    "a cached property": (
        lambda m, f, p: vars(m.made).update(total=9.0),
        r"made\.total is 9\.0, planned for 1\.5",
    ),
    "a namespace in a list": (
        lambda m, f, p: setattr(m.held[0], "scale", 9.0),
        r"held\[0\]\.__dict__ is dict \{'scale': 9\.0\}, planned for dict \{'scale': 1\.5\}",
    ),
    "an object in a list in a dict in a list": (
        lambda m, f, p: setattr(m.held[1]["of"][0], "by", 9.0),
        r"held\[1\]\[of\]\[0\]\.by is 9\.0, planned for 0\.5",
    ),
    "a UserDict": (
        lambda m, f, p: m.user.update(scale=9.0),
        r"user\[scale\] is 9\.0, planned for 0\.5",
    ),
    "a dict by dtype": (
        lambda m, f, p: m.by_dtype.update({torch.float32: 9.0}),
        r"by_dtype is dict \{torch\.float32: 9\.0, .*planned for dict \{torch\.float32: 0\.5",
    ),
    "a key with brackets": (
        lambda m, f, p: m.by_dtype.update({"a].b": 9.0}),
        r"by_dtype is dict \{.*'a\]\.b': 9\.0, .*planned for dict \{.*'a\]\.b': 1\.25",
    ),
    "a parametrization's number": (
        lambda m, f, p: setattr(m.layers[1].lin.parametrizations.weight[0], "by", 9.0),
        r"layers\.1\.lin\.parametrizations\.weight\.0\.by is 9\.0, planned for 0\.5",
    ),
    "the dim of torch's weight_norm": (
        lambda m, f, p: setattr(m.norm.parametrizations.weight[0], "dim", 1),
        r"norm\.parametrizations\.weight\.0\.dim is 1, planned for 0",
    ),
    "the dim of torch's weight_norm in a hook": (
        lambda m, f, p: setattr(next(iter(m.hooked._forward_pre_hooks.values())), "dim", 1),
        r"hooked is Linear.*'dim': 1\}, planned for Linear.*'dim': 0\}",
    ),
    "an object that is copied": (
        lambda m, f, p: setattr(m, "copied", f.Frozen(scale=9.0)),
        r"copied\.scale is 9\.0, planned for 1\.5",
    ),
    "another namespace": (
        lambda m, f, p: setattr(m, "space", types.SimpleNamespace(scale=9.0)),
        r"space\.scale is 9\.0, planned for 1\.25",
    ),
    "a subclass of float": (
        lambda m, f, p: setattr(m, "slope", f.Rate(9.0)),
        r"slope is Rate 9\.0, planned for Rate 0\.75",
    ),
    "a read-only dict": (
        lambda m, f, p: setattr(m, "table", types.MappingProxyType({"scale": 9.0})),
        r"table is mappingproxy \{'scale': 9\.0\}, planned for mappingproxy \{'scale': 1\.5\}",
    ),
    "a memory format": (
        lambda m, f, p: setattr(m, "order", torch.channels_last),
        r"order is torch\.channels_last, planned for torch\.contiguous_format",
    ),
    "the environment": (
        lambda m, f, p: p.setenv("REMAT_GEN_TEST_SCALE", "2"),
        r"os:environ\[REMAT_GEN_TEST_SCALE\] is '2', planned for not set",
    ),
}


@pytest.mark.parametrize("after_a_step", [False, True])
@pytest.mark.parametrize(("change", "told"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_named(
    rarely: Pair, change: Change, told: str, monkeypatch: Patch, *, after_a_step: bool
) -> None:
    _, planned = rarely.models()
    args, _ = rarely.inputs()
    if after_a_step:
        planned(*args)
    undo: Any = change(planned, rarely.planned, monkeypatch)
    try:
        with pytest.raises(ValueError, match=told):
            planned(*args)
    finally:
        if isinstance(undo, types.FunctionType):
            undo()


UNREAD: dict[str, Callable[[Any, Any, Patch], object]] = {
    "field of a namespace": lambda m, f, p: setattr(m.space, "unread", 9.0),
    "new field of a namespace": lambda m, f, p: setattr(m.space, "step", 9),
    "attribute beside those of vars(self)": lambda m, f, p: setattr(m, "unread", 9.0),
    "attribute of an object": lambda m, f, p: setattr(m.shift, "unread", 9.0),
    "field of a dataclass": lambda m, f, p: setattr(m, "frozen", f.Frozen(name="another")),
    "key of a UserDict": lambda m, f, p: m.user.update(unread=9.0),
    "log of the class": (lambda m, f, p: p.setattr(f.ReadsRarely, "log", [1.0])),
    "another variable of the environment": (lambda m, f, p: p.setenv("REMAT_GEN_TEST_OTHER", "2")),
}


@pytest.mark.parametrize("change", UNREAD.values(), ids=UNREAD)
def test_what_forward_does_not_read_may_change(
    rarely: Pair, change: Change, monkeypatch: Patch
) -> None:
    _, planned = rarely.models()
    args, _ = rarely.inputs()
    torch.manual_seed(0)
    before = planned(*args)
    change(planned, rarely.planned, monkeypatch)
    torch.manual_seed(0)
    assert torch.equal(planned(*args), before)
