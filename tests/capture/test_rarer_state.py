"""State that forward advances where it is easily overlooked, and what only looks like it."""

from __future__ import annotations

import functools
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from tracing import LINEAR, line_of, source, traced

from remat_gen.capture.load.load import load
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.ir.errors import TraceError

BEFORE = """
import array
import contextlib
import functools
import itertools
import os
import queue
import random
import secrets
import types
import uuid

import numpy as np


class Own(random.Random):
    pass


class Ticks:
    n = 0

    def tick(self):
        self.n += 1


class Outer:
    def __init__(self):
        self.inner = Ticks()

    def tick(self):
        self.inner.n += 1


def quiet():
    yield from (1.0, 1.0, 2.0, 2.0)


def quiet_loop():
    for number in [1.0, 1.0, 2.0, 2.0]:
        yield number


def counted(function):
    n = 0

    @functools.wraps(function)
    def called(self, x):
        nonlocal n
        n += 1
        return function(self, x) * (2 if n > 9 else 1)

    return called


class Sub(nn.Module):
    @counted
    def forward(self, x):
        return x * 2


class Defaulting(nn.Module):
    def forward(self, x, seen=[]):
        seen.append(1)
        return x


class Counting(torch.autograd.Function):
    n = [0]

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        Counting.n[0] += 1
        return gradient


SYSTEM, CACHE, KEPT = random.SystemRandom(), {}, {"h": None}
DRAW = random.Random(0).random


@functools.lru_cache
def ramp(width):
    return torch.arange(width) * 0.1


@functools.lru_cache
def forever():
    return itertools.count()
"""
H = "h = self.lin(x)\n"
TICK = "h = h * min(1.0, float(self.st{0})) if self.st{0} > 9 else h\nreturn h.sum()"
# what `self.st` is, what forward does, what is said
CASES: dict[str, tuple[str, str, str]] = {
    "subclass of random.Random": (
        "Own(0)",
        "return (h if self.st.random() < 2 else x).sum()",
        r"changes self\.st,",
    ),
    "draw of a generator of its own, bound": (
        "random.Random(0).random",
        "return (h if self.st() < 2 else x).sum()",
        r"changes self\.st\.__self__,",
    ),
    "draw of a generator of the file, bound": (
        "0",
        "return (h if DRAW() < 2 else x).sum()",
        r"changes DRAW\.__self__,",
    ),
    "generator that says the same twice": (
        "quiet()",
        "return (h * next(self.st)).sum()",
        r"changes self\.st,",
    ),
    "loop of a generator that says the same twice": (
        "quiet_loop()",
        "return (h * next(self.st)).sum()",
        r"changes self\.st,",
    ),
    "SystemRandom that decides": (
        "0",
        "return (h if SYSTEM.random() < 2 else x).sum()",
        "random numbers",
    ),
    "secrets that decide": (
        "0",
        "return (h if secrets.randbelow(2) < 2 else x).sum()",
        "random numbers",
    ),
    "bytes of the system": ("0", "return (h * (os.urandom(1)[0] + 1)).sum()", "random numbers"),
    "uuid": ("0", "return (h * (uuid.uuid4().int % 99)).sum()", "random numbers"),
    "new NumPy generator": (
        "0",
        "return (h * float(np.random.default_rng().random())).sum()",
        "random numbers",
    ),
    "array of a NumPy generator": (
        "np.random.default_rng(0)",
        "return (h * torch.from_numpy(self.st.random(8)).float()).sum()",
        r"changes self\.st,",
    ),
    "tick of a method": (
        "Ticks()",
        f"self.st.tick()\n{TICK.format('.n')}",
        r"changes self\.st\.n \(from 1 to 2\)",
    ),
    "tick of an object inside": (
        "Outer()",
        f"self.st.tick()\n{TICK.format('.inner.n')}",
        r"changes self\.st\.inner\.n \(from 1 to 2\)",
    ),
    "list of the class, by type(self)": (
        "0",
        "type(self).seen = getattr(type(self), 'seen', [])\n"
        "type(self).seen.append(1)\nreturn h.sum()",
        r"changes self\.__class__\.seen \(from list \[1\] to list \[1, 1\]\)",
    ),
    "decorator of a layer's forward": (
        "Sub()",
        "return self.st(h).sum()",
        r"changes self\.st\.forward\.__closure__\[1\]\.cell_contents \(from 1 to 2\)",
    ),
    "default of a layer's forward": (
        "Defaulting()",
        "return self.st(h).sum()",
        r"changes self\.st\.forward\.__defaults__",
    ),
    "counter in a hook of a tensor": (
        "{'n': 0}",
        "def count(gradient):\n    self.st['n'] += 1\n    return gradient\n\n"
        "h.register_hook(count)\nreturn h.sum()",
        r"changes self\.st\[n\] \(from 1 to 2\)",
    ),
    "counter in a backward": (
        "0",
        "return Counting.apply(h).sum()",
        r"changes Counting\.n \(from list \[1\] to list \[2\]\)",
    ),
    "variable of the environment": (
        "0",
        "n = int(os.environ.get('REMAT_GEN_TEST_N', '0')) + 1\n"
        "os.environ['REMAT_GEN_TEST_N'] = str(n)\nreturn h.sum()",
        r"changes os:environ\[REMAT_GEN_TEST_N\] \(from '1' to '2'\)",
    ),
    "vars(self)": (
        "types.SimpleNamespace(n=0)",
        f"vars(self.st)['n'] += 1\n{TICK.format('.n')}",
        r"changes self\.st\.n \(from 1 to 2\)",
    ),
    "queue": (
        "queue.Queue()",
        "self.st.put(1)\nreturn (h * self.st.qsize()).sum()",
        r"changes self\.st\.unfinished_tasks \(from 1 to 2\)",
    ),
    "bytearray": ("bytearray(1)", "self.st[0] += 1\nreturn h.sum()", r"changes self\.st \(from "),
    "array": (
        "array.array('i', [0])",
        "self.st[0] += 1\nreturn h.sum()",
        r"changes self\.st \(from ",
    ),
    "counter behind a cache": (
        "0",
        "return (h * next(forever())).sum()",
        r"does not repeat itself.*net\.py:\d+: return \(h \* next\(forever",
    ),
    "layer in a list that changes": (
        "[nn.Dropout(0.1)]",
        "self.st[0].p = min(0.9, self.st[0].p + 0.1)\nreturn self.st[0](h).sum()",
        r"changes self\.st\[0\]\.p",
    ),
    "tensor that is kept in a dict": (
        "{'h': None}",
        "last = self.st['h']\nself.st['h'] = h\nreturn (h if last is None else h - last).sum()",
        r"keeps a tensor in self\.st\[h\]",
    ),
    "tensor that is kept in a dict of the file": (
        "0",
        "KEPT['h'] = h\nreturn h.sum()",
        r"keeps a tensor in KEPT\[h\]",
    ),
    "tensor that is kept in a list": (
        "[None]",
        "last = self.st[0]\nself.st[0] = h\nreturn (h if last is None else h - last).sum()",
        r"keeps a tensor in self\.st",
    ),
    "tensor that is kept in an object": (
        "Ticks()",
        "self.st.last = h\nreturn h.sum()",
        r"keeps a tensor in self\.st",
    ),
    "tensor that is kept in a namespace": (
        "types.SimpleNamespace(h=None)",
        "self.st.h = h\nreturn h.sum()",
        r"keeps a tensor in self\.st",
    ),
    "mask that the first step's input makes": (
        "0",
        "if 'ramp' not in CACHE:\n    CACHE['ramp'] = x.detach().mean(0) * 0.1\n"
        "return (h * CACHE['ramp']).sum()",
        r"keeps a tensor in CACHE\[ramp\].*run the model once in build_model\(\)",
    ),
}


@pytest.mark.parametrize(("held", "forward", "told"), CASES.values(), ids=CASES)
def test_what_forward_advances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str, forward: str, told: str
) -> None:
    monkeypatch.setenv("REMAT_GEN_TEST_N", "0")
    text = source(f"{LINEAR}\nself.st = {held}", H + forward, before=BEFORE)
    with pytest.raises(TraceError, match=told):
        traced(tmp_path, text)


PARAMETERS = {
    "layer in a list": ("[nn.Linear(8, 8)]", "self.st[0](h)"),
    "frozen layer in a list": ("[nn.Linear(8, 8).requires_grad_(False)]", "self.st[0](h)"),
    "layer in a dict": ("{'a': nn.Sequential(nn.Linear(8, 8))}", "self.st['a'](h)"),
    "layer in an object": ("types.SimpleNamespace(a=nn.Linear(8, 8))", "self.st.a(h)"),
    "parameter in a list": ("[nn.Parameter(torch.ones(8))]", "h * self.st[0]"),
    "tensor that requires grad": ("torch.ones(8, requires_grad=True)", "h * self.st"),
}


@pytest.mark.limit(
    "layers and parameters in plain lists, dicts and objects, which `parameters()` has not",
    "refused with your line; `nn.ModuleList`, `nn.ParameterList` and others",
)
@pytest.mark.parametrize(("held", "result"), PARAMETERS.values(), ids=PARAMETERS)
def test_parameters_that_the_model_does_not_have(tmp_path: Path, held: str, result: str) -> None:
    """They were numbers of the plan, without a gradient: no word of it."""
    text = source(f"{LINEAR}\nself.st = {held}", f"{H}return ({result}).sum()", before=BEFORE)
    with pytest.raises(TraceError, match=r"^net\.py:\d+: forward reads a parameter, .*ModuleList"):
        traced(tmp_path, text)


IDENTIFIER = """
exec(compile("def identifier():\\n    return uuid.uuid4().hex", "<library>", "exec"))
"""
PLANNED = {
    "cached property": (
        "types.SimpleNamespace(a=2.0)",
        "return (h * self.twice).sum()",
    ),
    "function with a cache that makes a tensor": ("0", "return (h * ramp(8)).sum()"),
    "pytree of a dict": (
        "{'a': 2.0, 'b': [3.0]}",
        "doubled = torch.utils._pytree.tree_map(lambda x: 2 * x, self.st)\n"
        "return (h * doubled['b'][0]).sum()",
    ),
    "dict whose type is asked for": (
        "{'a': 2.0}",
        "return (h * (self.st['a'] if type(self.st) is dict else 5.0)).sum()",
    ),
    "namespace whose type is asked for": (
        "types.SimpleNamespace(a=2.0)",
        "return (h * (2.0 if type(self.st) is types.SimpleNamespace else 5.0)).sum()",
    ),
    "copy of a dict": (
        "{'a': {'b': 2.0}}",
        "import copy\nreturn (h * copy.deepcopy(self.st)['a']['b']).sum()",
    ),
    "words for people": (
        "0",
        "import logging\nlogging.getLogger('remat_gen_test').debug('seen')\nreturn h.sum()",
    ),
    "identifier that a library draws": ("0", "return (h * len(identifier())).sum()"),
    "layers without parameters in a list": ("[nn.ReLU()]", "return self.st[0](h).sum()"),
}


@pytest.mark.parametrize(("held", "forward"), PLANNED.values(), ids=PLANNED)
def test_what_only_looks_like_state_is_planned(tmp_path: Path, held: str, forward: str) -> None:
    twice = "    @functools.cached_property\n    def twice(self):\n        return 2 * self.st.a\n\n"
    text = source(f"{LINEAR}\nself.st = {held}", H + forward, before=BEFORE)
    text = text.replace("    def forward(self, x):\n", f"{twice}    def forward(self, x):\n")
    text = text.replace("class Own(", f"{IDENTIFIER}\n\nclass Own(", 1)
    assert traced(tmp_path, text).graph.operations


def held_by(kind: type) -> dict[str, Any]:
    """Return what a class holds, but for what Python notes there when an object is pickled."""
    return {name: value for name, value in vars(kind).items() if name != "__slotnames__"}


def test_what_the_recording_leaves_behind(tmp_path: Path) -> None:
    """Classes, files and the profile are as before; so is what the model holds."""
    init = f"{LINEAR}\nself.st, self.space = {{'a': 2.0}}, types.SimpleNamespace(b=Ticks())"
    forward = (
        f"{H}CACHE['n'] = 1\nreturn (h * self.st['a'] + self.space.b.n + vars(self)['c']).sum()"
    )
    path = tmp_path / "net.py"
    path.write_text(source(f"{init}\nself.c = 1.0", forward, before=BEFORE), encoding="utf-8")
    loaded = load(path, None, None, "cpu")
    file: Any = loaded.module
    kinds: list[type] = [nn.Module, nn.Linear, file.Net, file.Ticks, types.SimpleNamespace]
    before = [held_by(kind) for kind in kinds]
    profile, held = sys.getprofile(), dict(vars(loaded.model))
    trace_loaded(loaded)
    assert [held_by(kind) for kind in kinds] == before
    assert sys.getprofile() is profile
    assert vars(loaded.model) == held
    assert type(loaded.model.st) is type(file.CACHE) is dict
    assert type(loaded.model.space) is types.SimpleNamespace
    assert type(file) is types.ModuleType


def test_a_cache_is_emptied_of_what_a_run_on_fakes_left_there(tmp_path: Path) -> None:
    text = source(LINEAR, f"{H}return (h * ramp(8)).sum()", before=BEFORE)
    path = tmp_path / "net.py"
    path.write_text(text, encoding="utf-8")
    loaded = load(path, None, None, "cpu")
    ramp: Any = vars(loaded.module)["ramp"]
    assert isinstance(ramp, functools._lru_cache_wrapper)
    trace_loaded(loaded)
    assert type(ramp(8)) is torch.Tensor


OF_SELF = "@functools.lru_cache\ndef kept(net):\n    return {}\n\n"
# what a cached function makes of the model, and what is said to follow from what
STALE = {
    "random numbers": ("torch.rand(8)", "random numbers"),
    "a parameter": ("net.lin.weight[0].exp()", r"self\.lin\.weight"),
    "a buffer that changes": ("net.norm.running_mean + 1", r"self\.norm\.running_mean"),
}


@pytest.mark.limit(
    "a function with a cache (`functools.cache`, `cached_property`) that returns tensors made of "
    "random numbers, parameters, inputs or changing buffers",
    "refused with its line; those of constants are planned",
)
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(("made", "of"), STALE.values(), ids=STALE)
def test_what_a_cache_keeps_of_one_step(tmp_path: Path, made: str, of: str, warm: bool) -> None:
    """Dynamo looks through caches: a plan made anew in each step what eager makes once."""
    text = source(
        f"{LINEAR}\nself.norm = nn.BatchNorm1d(8)",
        "return (self.norm(self.lin(x)) * kept(self)).sum()",
        before=BEFORE + OF_SELF.format(made),
    )
    path = tmp_path / "net.py"
    path.write_text(text, encoding="utf-8")
    loaded = load(path, None, None, "cpu")
    if warm:
        loaded.model(*loaded.args)
    line = line_of(text, "def kept") - 1
    with pytest.raises(TraceError, match=rf"net\.py:{line}: kept keeps .*follows from {of}:"):
        trace_loaded(loaded)


def test_what_a_cached_property_keeps_of_one_step(tmp_path: Path) -> None:
    made = "def doubled(self):\n        return 2 * self.st.weight\n\n"
    doubled = f"    @functools.cached_property\n    {made}"
    text = source(
        f"{LINEAR}\nself.st = nn.Linear(8, 8)", f"{H}return (h @ self.doubled).sum()", before=BEFORE
    )
    text = text.replace("    def forward(self, x):\n", f"{doubled}    def forward(self, x):\n")
    line = text[: text.rindex("def doubled")].count("\n")  # of what decorates it
    with pytest.raises(TraceError, match=rf"net\.py:{line}: Net\.doubled keeps .*self\.st\.weight"):
        traced(tmp_path, text)
