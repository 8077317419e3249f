"""What forward reads, wherever Python keeps it: changed since planning, a step says what was."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
import torch
from pairs import Pair, make_pair
from steps import assert_same, run_steps
from torch import nn

Patch = pytest.MonkeyPatch
Change = Callable[[Any, Any, Patch], object]


def put(held: list[Any], at: int, value: object) -> Callable[[], None]:
    """Put a value into a list; return what puts the old one back."""
    old, held[at] = held[at], value
    return lambda: held.__setitem__(at, old)


@pytest.fixture(scope="module")
def reads() -> Pair:
    return make_pair("reads", "1GB", "per-layer")


def test_it_is_right(reads: Pair) -> None:
    assert_same(*(run_steps(model, reads) for model in reads.models()))


# a change of the model or of its file, and what is said: the path, the new value, the old one
CHANGES: dict[str, tuple[Change, str]] = {
    "attribute": (
        lambda m, f, p: setattr(m.layers[2], "gain", 7.0),
        r"layers\.2\.gain is 7\.0, .*3",
    ),
    "private attribute": (
        lambda m, f, p: setattr(m.layers[1], "_hidden", 0.5),
        r"layers\.1\._hidden is 0\.5, planned for 0\.75",
    ),
    "computed name": (
        lambda m, f, p: setattr(m.layers[0], "x0", 0.75),
        r"layers\.0\.x0 is 0\.75, planned for 0\.5",
    ),
    "key with an underscore": (
        lambda m, f, p: m.layers[0].options.update(_k=3.0),
        r"layers\.0\.options\[_k\] is 3\.0, planned for 2\.0",
    ),
    "absent key": (
        lambda m, f, p: m.layers[0].options.update(absent=3.0),
        r"layers\.0\.options\[absent\] is 3\.0, planned for not set",
    ),
    "another dict": (
        lambda m, f, p: setattr(m.layers[0], "options", {"_k": 5.0}),
        r"layers\.0\.options\[_k\] is 5\.0, planned for 2\.0",
    ),
    "class attribute": (
        lambda m, f, p: p.setattr(f.Layer, "rate", 2.0),
        r"layers\.0\.__class__\.rate is 2\.0, planned for 0\.5",
    ),
    "attribute of a base": (
        lambda m, f, p: p.setattr(f.Base, "bias_of_class", 2.0),
        r"layers\.0\.bias_of_class is 2\.0, planned for 0\.125",
    ),
    "attribute over a class's": (
        lambda m, f, p: setattr(m.layers[1], "bias_of_class", 2.0),
        r"layers\.1\.bias_of_class is 2\.0, planned for 0\.125",
    ),
    "config": (
        lambda m, f, p: setattr(m.config, "scale", 3.0),
        r"config\.scale is 3\.0, planned for 2\.0",
    ),
    "list in a config": (
        lambda m, f, p: m.config.sizes.__setitem__(1, 5.0),
        r"config\.sizes is list \[1\.0, 5\.0\], planned for list \[1\.0, 2\.0\]",
    ),
    "another config": (
        lambda m, f, p: setattr(m, "config", f.Config(9.0)),
        r"config\.scale is 9\.0, planned for 2\.0",
    ),
    "tensor in a dict, in place": (
        lambda m, f, p: m.w["kl"].fill_(0.5),
        r"w\[kl\] is float32\[\] 0\.5, planned for float32\[\] 0\.0",
    ),
    "tensor in a dict, another": (
        lambda m, f, p: m.w.update(kl=torch.tensor(0.25)),
        r"w\[kl\] is float32\[\] 0\.25, planned for float32\[\] 0\.0",
    ),
    "tensor in a list, in place": (
        lambda m, f, p: m.rows[1].mul_(2),
        r"rows is list \[.*6\.0\]\], planned for list \[.*3\.0\]\]",
    ),
    "tensor in a list, another": (
        lambda m, f, p: m.rows.__setitem__(0, torch.zeros(8)),
        r"rows is list \[float32\[8\] \[0\.0, ",
    ),
    "tensor attribute, in place": (
        lambda m, f, p: m.scale_tensor.fill_(3.0),
        r"scale_tensor is float32\[8\] \[3\.0, .*planned for float32\[8\] \[1\.5",
    ),
    "tensor attribute, another": (
        lambda m, f, p: setattr(m, "scale_tensor", torch.ones(8)),
        r"scale_tensor is float32\[8\] \[1\.0, .*planned for float32\[8\] \[1\.5",
    ),
    "nested namespace": (
        lambda m, f, p: setattr(m.space.inner, "scale", 3.0),
        r"space\.inner\.scale is 3\.0, planned for 2\.0",
    ),
    "tensor in a namespace": (
        lambda m, f, p: m.space.t.mul_(2),
        r"space\.t is float32\[8\] \[2\.0",
    ),
    "another namespace inside": (
        lambda m, f, p: setattr(m.space, "inner", type(m.space)(scale=4.0)),
        r"space\.inner\.scale is 4\.0, planned for 2\.0",
    ),
    "argparse": (
        lambda m, f, p: setattr(m.args, "width", 2.5),
        r"args\.width is 2\.5, planned for 1\.5",
    ),
    "large array, in place": (
        lambda m, f, p: m.big.__setitem__(700, 2.0),
        r"big is float64\[1200\] sha256 \w+, planned for float64\[1200\] sha256 \w+",
    ),
    "large array, another": (
        lambda m, f, p: setattr(m, "big", m.big * 1.0000001),
        r"big is float64\[1200\] sha256 \w+, planned for float64\[1200\] sha256 \w+",
    ),
    "small array": (
        lambda m, f, p: m.small.__setitem__(1, 7.0),
        r"small is float64\[2\] \[1\.0, 7\.0\], planned for float64\[2\] \[1\.0, 2\.0\]",
    ),
    "long list, in place": (
        lambda m, f, p: m.long.__setitem__(1500, 2.0),
        r"long is list sha256 \w+, planned for list sha256 \w+",
    ),
    "long list, another": (
        lambda m, f, p: setattr(m, "long", [2.0] * 2000),
        r"long is list sha256 \w+, planned for list sha256 \w+",
    ),
    "seven dicts deep": (
        lambda m, f, p: m.deep["a"]["a"]["a"]["a"]["a"]["a"].update(a=3.0),
        r"deep\[a\]\[a\]\[a\]\[a\]\[a\]\[a\]\[a\] is 3\.0, planned for 2\.0",
    ),
    "a dict on the way": (
        lambda m, f, p: m.deep["a"].update(a={"a": {"a": {"a": {"a": {"a": 4.0}}}}}),
        r"deep\[a\]\[a\]\[a\]\[a\]\[a\]\[a\]\[a\] is 4\.0, planned for 2\.0",
    ),
    "named tuple": (
        lambda m, f, p: setattr(m, "pair", f.Pair(9.0, 2.5)),
        r"pair is Pair \[9\.0, 2\.5\], planned for Pair \[1\.5, 2\.5\]",
    ),
    "deque": (
        lambda m, f, p: m.queue.rotate(1),
        r"queue is deque \[2\.0, 1\.0\], planned for deque \[1\.0, 2\.0\]",
    ),
    "ordered dict": (
        lambda m, f, p: m.ordered.update(first=2.0),
        r"ordered is OrderedDict \{'first': 2\.0\}, planned for",
    ),
    "set": (
        lambda m, f, p: m.members.add("c"),
        r"members is set \['a', 'b', 'c'\], planned for set",
    ),
    "slots": (
        lambda m, f, p: setattr(m.slots, "value", 2.0),
        r"slots\.value is 2\.0, planned for 1\.5",
    ),
    "what a method of an object reads": (
        lambda m, f, p: setattr(m.scaler, "z", 5.0),
        r"scaler\.z is 5\.0, planned for 2\.0",
    ),
    "an object's class": (
        lambda m, f, p: p.setattr(f.Scaler, "factor", 5.0),
        r"scaler\.factor is 5\.0, planned for 1\.25",
    ),
    "a method of an object": (
        lambda m, f, p: p.setattr(f.Scaler, "go", lambda _, x: x),
        r"scaler\.go is function \S*<lambda>, planned for function Scaler\.go",
    ),
    "a property of an object": (
        lambda m, f, p: p.setattr(f.Scaler, "half", property(lambda _: 9.0)),
        r"scaler\.__class__\.half is function \S*<lambda>, planned for function Scaler\.half",
    ),
    "enum": (
        lambda m, f, p: setattr(m, "way", f.Way.TWO),
        r"way is <Way\.TWO: 2>, planned for <Way\.ONE: 1>",
    ),
    "function attribute of a module": (
        lambda m, f, p: setattr(m, "act", torch.relu),
        r"act is function \S+relu, planned for function \S+tanh",
    ),
    "keywords of a call": (
        lambda m, f, p: m.kwargs.update(by=2.0),
        r"kwargs\S* is (dict \{'by': )?2\.0\}?, planned for (dict \{'by': )?1\.25",
    ),
    "number of the file": (
        lambda m, f, p: p.setattr(f, "SCALE", 2.5),
        r"SCALE is 2\.5, planned for 1\.5",
    ),
    "list of the file": (
        lambda m, f, p: put(f.LIST, 0, 3.0),
        r"LIST is list \[3\.0\], planned for list \[2\.0\]",
    ),
    "namespace of the file": (
        lambda m, f, p: p.setattr(f.SPACE, "scale", 2.0),
        r"SPACE\.scale is 2\.0, planned for 0\.5",
    ),
    "dict of the file": (
        lambda m, f, p: p.setitem(f.NESTED["a"]["b"], "c", 2.0),
        r"NESTED\[a\]\[b\]\[c\] is 2\.0, planned for 1\.25",
    ),
    "tensor of the file": (
        lambda m, f, p: p.setattr(f, "TENSOR", torch.ones(8)),
        r"TENSOR is float32\[8\] \[1\.0",
    ),
    "tensor in a list of the file": (
        lambda m, f, p: put(f.TENSORS, 0, torch.ones(8)),
        r"TENSORS is list \[float32\[8\] \[1\.0",
    ),
    "tensor of a class of the file": (
        lambda m, f, p: p.setattr(f.Held, "tensor", torch.ones(8)),
        r"Held\.tensor is float32\[8\] \[1\.0",
    ),
    "list of a class of the file": (
        lambda m, f, p: put(f.Held.numbers, 1, 9.0),
        r"Held\.numbers is list \[1\.0, 9\.0\], planned for list \[1\.0, 3\.0\]",
    ),
    "class method": (
        lambda m, f, p: p.setattr(f.Held, "third", staticmethod(lambda: 1.0)),
        r"Held\.third is function \S*<lambda>, planned for function Held\.third",
    ),
    "mutable default": (
        lambda m, f, p: put(f.defaulting.__defaults__[0], 0, 9.0),
        r"defaulting\.__defaults__ is tuple \[list \[9\.0\]\], planned for tuple \[list \[1\.5\]\]",
    ),
    "keyword's default": (
        lambda m, f, p: p.setattr(f.keyword, "__kwdefaults__", {"by": 9.0}),
        r"\.__kwdefaults__ is dict \{'by': 9\.0\}, planned for",
    ),
    "number that a function was made with": (
        lambda m, f, p: p.setattr(f.made.__closure__[0], "cell_contents", 9.0),
        r"made\.__closure__\[0\]\.cell_contents is 9\.0, planned for 2\.0",
    ),
    "tensor that a function was made with": (
        lambda m, f, p: p.setattr(f.made.__closure__[1], "cell_contents", torch.ones(8)),
        r"made\.__closure__\[1\]\.cell_contents is float32\[8\] \[1\.0",
    ),
    "attribute of a function": (
        lambda m, f, p: p.setattr(f.made, "extra", 9.0),
        r"made\.extra is 9\.0, planned for 0\.75",
    ),
    "another partial": (
        lambda m, f, p: p.setattr(f, "partial", type(f.partial)(f.keyword, by=9.0)),
        r"partial\.keywords is dict \{'by': 9\.0\}, planned for",
    ),
    "another function of the file": (
        lambda m, f, p: p.setattr(f, "keyword", f.defaulting),
        r"keyword is function defaulting, planned for function keyword",
    ),
}


@pytest.mark.parametrize("after_a_step", [False, True])
@pytest.mark.parametrize(("change", "told"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_named(
    reads: Pair, change: Change, told: str, monkeypatch: Patch, *, after_a_step: bool
) -> None:
    _, planned = reads.models()
    args, _ = reads.inputs()
    if after_a_step:
        planned(*args)
    undo: Any = change(planned, reads.planned, monkeypatch)
    try:
        with pytest.raises(ValueError, match=told):
            planned(*args)
    finally:
        if isinstance(undo, FunctionType):
            undo()


UNREAD: dict[str, Callable[[Any], object]] = {
    "key beside one that is read": lambda m: m.layers[0].options.update(unread=1.0, new=2.0),
    "field of a config": lambda m: setattr(m.config, "lr", 0.5),
    "attribute of a namespace": lambda m: setattr(m.args, "name", "another"),
    "attribute of a layer": lambda m: setattr(m.layers[1], "x1", 9.0),
    "log": lambda m: m.log.append(1.0),
    "new attribute of a layer": lambda m: setattr(m.layers[1], "note", "seen"),
    "new attribute of the model": lambda m: setattr(m, "current_epoch", 3),
    "module that a trainer adds": lambda m: m.add_module("metric", nn.Identity()),
}


@pytest.mark.parametrize("change", UNREAD.values(), ids=UNREAD)
def test_what_forward_does_not_read_may_change(
    reads: Pair, change: Callable[[Any], object]
) -> None:
    _, planned = reads.models()
    args, _ = reads.inputs()
    before = planned(*args)
    change(planned)
    assert torch.equal(planned(*args), before)
