"""State that forward advances is a constant to a plan: refused, by whatever it is kept in."""

from __future__ import annotations

from pathlib import Path

import pytest
from tracing import LINEAR, source, traced

from remat_gen.ir.errors import TraceError

BEFORE = """
import collections
import functools
import itertools
import random
import time
import types

import numpy as np


class Counter:
    n = 0

    def __init__(self):
        self.k = 0

    def step(self):
        self.k += 1
        return self.k


class Slotted:
    __slots__ = ("n",)

    def __init__(self):
        self.n = 0


class Kept:
    CACHE = [0]


RNG = np.random.default_rng(0)
PY_RNG = random.Random(0)
SYSTEM = random.SystemRandom()
CYCLE = itertools.cycle([1.0, 2.0])
STATS = {"n": 0}
HISTORY = []
SPACE = types.SimpleNamespace(n=0)


def counting(h):
    counting.n += 1
    return h * counting.n


counting.n = 0


def defaulting(h, seen=[0]):
    seen[0] += 1
    return h * seen[0]


def closing():
    calls = 0

    def called(h):
        nonlocal calls
        calls += 1
        return h * min(1.0, calls / 10)

    return called


closed = closing()


def counted(function):
    calls = [0]

    @functools.wraps(function)
    def called(*args):
        calls[0] += 1
        return function(*args)

    return called


@counted
def twice(h):
    return 2 * h


def numbers():
    n = 0.0
    while True:
        n += 1
        yield n
"""
SELF = LINEAR + "\nself.st = {}"
H = "h = self.lin(x)\n"
CASES: dict[str, tuple[str, str, str]] = {
    "random.Random on self": ("random.Random(0)", "h * self.st.random()", r"self\.st|repeat"),
    "NumPy generator on self": (
        "np.random.default_rng(0)",
        "h * float(self.st.random())",
        "self.st",
    ),
    "LayerDrop by NumPy": (
        "np.random.default_rng(0)",
        "h if self.st.random() < 0.999 else x",
        r"self\.st",
    ),
    "LayerDrop by random.Random": (
        "random.Random(0)",
        "h if self.st.random() < 0.999 else x",
        r"self\.st",
    ),
    "RandomState": ("np.random.RandomState(0)", "h * self.st.rand()", r"self\.st"),
    "namespace": (
        "types.SimpleNamespace(n=0)",
        "h * setattr(self.st, 'n', self.st.n + 1) if 0 else h * bump(self.st)",
        r"self\.st\.n \(from 1 to 2\)",
    ),
    "object": ("Counter()", "h * self.st.step()", r"self\.st\.k \(from 1 to 2\)"),
    "object with slots": ("Slotted()", "h * bump(self.st)", r"self\.st\.n \(from 1 to 2\)"),
    "deque": (
        "collections.deque([1.0, 2.0, 3.0])",
        "(self.st.rotate(1), h * self.st[0])[1]",
        r"self\.st",
    ),
    "itertools.cycle": ("itertools.cycle([1.0, 2.0])", "h * next(self.st)", r"self\.st|repeat"),
    "itertools.count": ("itertools.count()", "h * next(self.st)", r"self\.st|repeat"),
    "a long cycle": ("itertools.cycle([1.0] * 50 + [2.0])", "h * next(self.st)", r"self\.st"),
    "iterator": ("iter([1.0] * 99 + [2.0])", "h * next(self.st)", r"self\.st"),
    "generator": ("numbers()", "h * next(self.st)", r"self\.st"),
    "dict on self": ("{'n': 0}", "(self.st.update(n=self.st['n'] + 1), h * self.st['n'])[1]", "st"),
    "unread dict": ("{'n': 0}", "(self.st.update(n=self.st['n'] + 1), h)[1]", r"self\.st\[n\]"),
    "nested list": ("[[0]]", "(self.st[0].append(1), h * len(self.st[0]))[1]", r"self\.st"),
    "NumPy array": ("np.zeros(1)", "(self.st.__iadd__(1), h * float(self.st[0]))[1]", r"self\.st"),
    "set": ("set()", "(self.st.add(len(self.st)), h * len(self.st))[1]", r"self\.st"),
    "class list": ("0", "(Kept.CACHE.append(1), h * len(Kept.CACHE))[1]", r"Kept\.CACHE"),
    "class list item": ("0", "(Kept.CACHE.__setitem__(0, Kept.CACHE[0] + 1), h)[1]", "Kept.CACHE"),
    "NumPy generator of the file": ("0", "h * float(RNG.random())", "RNG"),
    "random.Random of the file": ("0", "h * PY_RNG.random()", "PY_RNG|repeat"),
    "SystemRandom": ("0", "h * SYSTEM.random()", "random numbers"),
    "cycle of the file": ("0", "h * next(CYCLE)", "CYCLE|repeat"),
    "dict of the file": ("0", "(STATS.update(n=STATS['n'] + 1), h)[1]", r"STATS\[n\]"),
    "list of the file": ("0", "(HISTORY.append(1), h * len(HISTORY))[1]", "HISTORY"),
    "namespace of the file": ("0", "h * bump(SPACE)", r"SPACE\.n"),
    "function attribute": ("0", "counting(h)", r"counting\.n"),
    "mutable default": ("0", "defaulting(h)", r"defaulting\.__defaults__"),
    "closure": ("0", "closed(h)", r"closed\.__closure__"),
    "decorator that counts": ("0", "twice(h)", r"twice\.__closure__"),
    "clock": ("0", "h * (time.time() % 1000)", r"net\.py:\d+: .*time\.time"),
    "finer clock": ("0", "h * (time.perf_counter() % 1000)", r"net\.py:\d+: .*perf_counter"),
    "random.random()": ("0", "h * random.random()", "random numbers"),
    "random.random() that decides": ("0", "h if random.random() < 2 else x", "random numbers"),
}
BUMP = "\n\ndef bump(of):\n    of.n += 1\n    return of.n\n"


@pytest.mark.limit(
    "Python state that `forward` advances, wherever it is kept: objects, dicts, iterators, "
    "generators, closures, defaults, classes, the file; and clocks",
    "refused with its name, or your line: forward runs twice, and must do the same",
)
@pytest.mark.parametrize(("held", "result", "told"), CASES.values(), ids=CASES)
def test_what_forward_advances(tmp_path: Path, held: str, result: str, told: str) -> None:
    text = source(f"{LINEAR}\nself.st = {held}", f"{H}return {result}", before=BEFORE + BUMP)
    with pytest.raises(TraceError, match=told):
        traced(tmp_path, text)


SETTLED = {
    "a kind that is noted": (
        "types.SimpleNamespace(kind=None)",
        "if self.st.kind is None:\n    self.st.kind = 'sum'\nreturn h.sum() if self.st.kind else h",
    ),
    "what is only read": ("{'scale': 2.0, 'lr': 0.1}", "return h * self.st['scale']"),
    "a list that nobody writes": ("[1.0, 2.0]", "return h * self.st[1] * len(self.st)"),
}


@pytest.mark.parametrize(("held", "forward"), SETTLED.values(), ids=SETTLED)
def test_what_stays_is_planned(tmp_path: Path, held: str, forward: str) -> None:
    text = source(f"{LINEAR}\nself.st = {held}", H + forward, before=BEFORE)
    assert traced(tmp_path, text).reads.paths
