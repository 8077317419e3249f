"""What forward reads by ways that no row says: changed, a planned step goes on as planned."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pairs import Pair, make_pair_of
from sources import model_source

Patch = pytest.MonkeyPatch
ELSEWHERE = """
import contextvars
import enum
import functools
import sys
import threading
import types
import weakref


class Options:
    def __init__(self, scale): self.scale = scale
    def __call__(self, y): return y * 1.5
    def __len__(self): return 2


class Others(Options):
    pass


class Kind(enum.Enum):
    A = 1


class Gain:
    value = 1.5
    def __get__(self, owner, kind=None): return self if owner is None else self.value


class Gained(nn.Module):
    gain = Gain()


@functools.singledispatch
def turned(options): return 1.0


@turned.register
def _(options: Options): return 1.5


def scaled(x):
    return x * 2.0


SCALE = contextvars.ContextVar("SCALE", default=2.0)
Kind.A.gain = X = 1.5
"""
HOLDS = """
self.options, self.text, self.numbers = Options(1.5), "X * 2", {"k": 1.5}
self.members, self.behind = {Options(1.5)}, weakref.ref(self.options)
self.by_kind = {Kind.A: Options(1.5), ("a", "b"): Options(1.5), "0": Options(1.5)}
self.made, self.local, self.place = types.ModuleType("made"), threading.local(), PLACE
self.made.gain = self.local.gain = 1.5
self.gained, self.other = Gained(), Options(1.5)
"""
READS = """
y = self.head(self.body(x)) * self.by_kind[Kind.A].scale * self.by_kind["a", "b"].scale
y = y * self.by_kind["0"].scale * next(iter(self.members)).scale * self.behind().scale
y = y * Kind.A.gain * self.made.gain * self.local.gain * self.gained.gain
y = y * len([name for name in dir(self) if name.startswith("s")])
y = y * len([1, *(value for value in vars(self).values() if isinstance(value, float))])
y = y * dict.get(self.numbers, "k") * turned(self.options)
y = self.options(y) * len(self.options) * eval(self.text) * max(0.5, 1.5)
y = y * (2.0 if "LATE" in globals() else 1.0) * (sys.getrecursionlimit() / 1000)
with open(self.place) as text:
    y = y * float(text.read())
y = scaled(y) * SCALE.get()
return (y * (2.0 if type(self.other) is Options else 1.0)).square().mean()
"""
Where = Callable[[Any, Any], Any]
ATTRIBUTES: dict[str, tuple[Where, str, Any]] = {
    "an object in a set": (lambda m, _: next(iter(m.members)), "scale", 9.0),
    "an object by an Enum's member": (lambda m, f: m.by_kind[f.Kind.A], "scale", 9.0),
    "an object by a pair": (lambda m, _: m.by_kind["a", "b"], "scale", 9.0),
    "an object by a digit": (lambda m, _: m.by_kind["0"], "scale", 9.0),
    "of an Enum's member": (lambda _, f: f.Kind.A, "gain", 9.0),
    "of a module made by hand": (lambda m, _: m.made, "gain", 9.0),
    "of a threading.local": (lambda m, _: m.local, "gain", 9.0),
    "of a descriptor": (lambda _, f: f.Gain, "value", 9.0),
    "behind a weak reference": (lambda m, _: m.options, "scale", 9.0),
    "what dir() has": (lambda m, _: m, "spare", None),
    "what vars() has": (lambda m, _: m, "rate", 0.5),
    "what a text names": (lambda _, f: f, "X", 9.0),
    "over a function of Python's": (lambda _, f: f, "max", lambda *_: 9.0),
    "a name among globals": (lambda _, f: f, "LATE", True),
    "other code of a function": (
        lambda _, f: f.scaled,
        "__code__",
        (lambda x: x * 3.0).__code__,
    ),
    "how an object is called": (lambda _, f: f.Options, "__call__", lambda _, y: y * 9.0),
    "how long an object is": (lambda _, f: f.Options, "__len__", lambda _: 9),
}
OTHERS: dict[str, Callable[[Any, Any], object]] = {
    "by dict's own get": lambda m, _: m.numbers.update(k=9.0),
    "what is registered for a class": lambda _, f: f.turned.register(f.Options, lambda _: 9.0),
    "a file": lambda m, _: Path(m.place).write_text("9.0"),
    "a context variable": lambda _, f: f.SCALE.set(9.0),
    "of the process": lambda *_: sys.setrecursionlimit(9000),
}


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    place = tmp_path_factory.mktemp("read") / "gain.txt"
    place.write_text("1.5")
    holds = HOLDS.replace("PLACE", repr(str(place)))
    return make_pair_of(model_source(READS, prelude=ELSEWHERE, init=holds), "1GB", "per-layer")


@pytest.mark.untold(
    "What `forward` reads of objects in a set or in a dict under a key that is no name (an `Enum`, "
    'a pair, `"0"`), behind a weak reference, in a `threading.local`, an `Enum`\'s member, a '
    "module object made by hand or a descriptor of the user's own; what it finds by `dir(self)`, "
    '`vars(self).values()`, `"X" in globals()` or in a text that it evaluates; a global that is '
    "put over a function of Python's; other code of a function, another one of its name, and what "
    "a class is given as `__call__` or `__len__`: changed since planning, a planned step goes on "
    "with what it was. `remat-gen check` traces the model again, and sees what is edited in files; "
    "of a library the version is a row."
)
@pytest.mark.parametrize("case", ATTRIBUTES)
def test_an_attribute_that_no_row_says(there: Pair, case: str, monkeypatch: Patch) -> None:
    where, name, value = ATTRIBUTES[case]
    goes_on(
        there,
        lambda model: monkeypatch.setattr(where(model, there.planned), name, value, raising=False),
    )


@pytest.mark.untold(
    "So it does with what `forward` reads in a file, in a context variable, by `dict.get(self.d, "
    "…)`, by another function registered by `singledispatch`, and with what it asks of the process "
    "by other ways than a function of torch's without arguments, called in the model's own files "
    "(those are rows of `ASSUMED`; torch's default dtype is where something is made in it)."
)
@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_what_no_row_says(there: Pair, change: Callable[[Any, Any], object]) -> None:
    limit, place = sys.getrecursionlimit(), Path(there.models()[0].place)
    context = contextvars.copy_context()
    try:
        context.run(goes_on, there, lambda model: change(model, there.planned))
    finally:
        sys.setrecursionlimit(limit)
        place.write_text("1.5")
        there.planned.turned.register(there.planned.Options, lambda _: 1.5)


@pytest.mark.untold("So it does with another class of the same object (`o.__class__ = Other`).")
def test_another_class_of_the_same_object(there: Pair) -> None:
    goes_on(there, lambda model: setattr(model.other, "__class__", there.planned.Others), 1)


@pytest.mark.untold("Another `torch.finfo` in a finfo's place is not seen either.")
def test_the_numbers_of_a_finfo() -> None:
    lines = "return (self.head(self.body(x)) * self.info.bits).square().mean()"
    source = model_source(lines, init="self.info = torch.finfo(torch.float32)")
    pair = make_pair_of(source, "1GB", "per-layer")
    goes_on(pair, lambda model: setattr(model, "info", torch.finfo(torch.float64)))


@pytest.mark.untold(
    "An item that somebody puts where forward's `defaultdict` makes one is put over by a planned "
    "step, which makes its own."
)
def test_an_item_that_a_defaultdict_makes() -> None:
    lines = 'return (self.head(self.body(x)) * self.made["late"]).square().mean()'
    init = "self.made = collections.defaultdict(lambda: 1.5)"
    pair = make_pair_of(model_source(lines, prelude="import collections", init=init))
    found = {}
    for name, model in zip(("eager", "planned"), pair.models(), strict=True):
        model.made["late"] = 9.0
        model(*pair.inputs()[0])
        found[name] = model.made["late"]
    assert found == {"eager": 9.0, "planned": 1.5}


@pytest.mark.untold(
    "`is` between lengths (`n is t`, `(n == 5) is True`), where it is so at other lengths than the "
    "example's, half of it and the least: a plan goes on as elsewhere."
)
def test_lengths_that_are_one() -> None:
    lines = "return (self.head(self.body(x)) * (2.0 if x.shape[0] is self.t else 3.0)).sum()"
    pair = make_pair_of(model_source(lines, init="self.t = 4"), "1GB", "per-layer")
    (x,), _ = pair.inputs()
    losses = []
    for model in pair.models():
        torch.manual_seed(0)
        losses.append(float(model(x[:4]).detach()))
    assert losses[0] * 3 == pytest.approx(losses[1] * 2)


@pytest.mark.untold(
    "What `forward` asks of a tensor that it is given beside its layout: `is_leaf`, `.grad`, "
    "attributes of its own."
)
@pytest.mark.parametrize("asked", ["x.is_leaf", "x.grad is None", "not hasattr(x, 'gain')"])
def test_what_forward_asks_of_a_tensor(asked: str) -> None:
    lines = f"return (self.head(self.body(x)) * (2.0 if {asked} else 3.0)).sum()"
    grad = asked == "x.is_leaf"
    pair = make_pair_of(model_source(lines, inputs=f"(torch.randn(6, 8, requires_grad={grad}),)"))
    (x,), _ = pair.inputs()
    other: Any = x * 1
    other.gain = 1.0
    if not grad:
        other.grad = torch.ones_like(x)
    losses = []
    for model in pair.models():
        for given in (x, other):
            torch.manual_seed(0)
            losses.append(float(model(given).detach()))
    assert losses[0] == losses[2] == losses[3] == pytest.approx(losses[1] / 1.5)


def goes_on(pair: Pair, change: Callable[[Any], object], steps: int = 0) -> None:
    """A planned step goes on with the example's, eager's with what there is now."""
    (args, _), (_, model) = pair.inputs(), pair.models()

    def losses() -> list[float]:
        found = []
        for step in (model, model.forward_eager):
            torch.manual_seed(0)
            found.append(float(step(*args).detach()))
        return found

    for _ in range(steps):
        model(*args)
    planned, eager = losses()
    assert planned == eager
    change(model)
    again, changed = losses()
    assert again == planned
    assert changed != eager
