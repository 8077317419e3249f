"""Configs of classes derived from dict: what forward asks them for is compared, no more."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pairs import Pair, make_pair_of
from sources import model_source
from steps import assert_right

CLASSES = """
class AttrDict(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


class Frozen(dict):
    def __init__(self, **items):
        super().__init__(items)
        self.__dict__.update(items)
        self.sealed = True

    def __setitem__(self, key, value):
        raise TypeError("frozen")
"""
INIT = """
self.cfg = AttrDict(scale=0.5, epoch=0, heads={"gain": 2.0, "seen": 0}, names=list({"a", "b", "c"}))
self.frozen = Frozen(shift=1.5, names=list({"a", "b", "c"}))
"""
FORWARD = """
x = self.body(x) * self.cfg.scale * self.cfg["heads"]["gain"] + self.frozen.shift
if "bias" in self.cfg:
    x = x + 1
return self.head(x) * self.cfg.get("late", 1.0)
"""
Change = Callable[[Any], object]
READ: dict[str, tuple[Change, str]] = {
    "an attribute": (lambda m: m.cfg.update(scale=0.25), r"cfg\.scale is 0\.25, planned for 0\.5"),
    "in a dict in it": (
        lambda m: m.cfg["heads"].update(gain=3.0),
        r"cfg\[heads\]\[gain\] is 3\.0, planned for 2\.0",
    ),
    "a key that was not there": (
        lambda m: m.cfg.update(bias=True),
        r"cfg\[bias\] is True, planned for not set",
    ),
    "a default": (lambda m: m.cfg.update(late=2.0), r"cfg\[late\] is 2\.0, planned for not set"),
    "another config": (
        lambda m: setattr(m, "frozen", type(m.frozen)(shift=2.5)),
        r"frozen\.shift is 2\.5, planned for 1\.5",
    ),
}
UNREAD: dict[str, Change] = {
    "an item": lambda m: m.cfg.update(epoch=3, run="b"),
    "in a dict in it": lambda m: m.cfg["heads"].update(seen=1),
    "names in another order": lambda m: m.cfg["names"].reverse(),
    "another config that says the same": lambda m: setattr(
        m, "frozen", type(m.frozen)(shift=1.5, names=["d"])
    ),
}


@pytest.fixture(scope="module")
def pair() -> Pair:
    return make_pair_of(model_source(FORWARD, init=INIT, prelude=CLASSES), "lowest", "per-layer")


def test_the_step_is_eagers(pair: Pair) -> None:
    assert_right(pair)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(("change", "told"), READ.values(), ids=READ)
def test_what_is_read_is_named(pair: Pair, change: Change, told: str, *, later: bool) -> None:
    _, planned = pair.models()
    args, _ = pair.inputs()
    if later:
        planned(*args)
    change(planned)
    with pytest.raises(ValueError, match=told):
        planned(*args)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("change", UNREAD.values(), ids=UNREAD)
def test_what_is_not_read_may_change(pair: Pair, change: Change, *, later: bool) -> None:
    _, planned = pair.models()
    args, _ = pair.inputs()
    if later:
        planned(*args)
    change(planned)
    planned(*args).sum().backward()


GONE_THROUGH = {
    "its items": "sum(v for v in self.cfg.values() if isinstance(v, float))",
    "handed on whole": "scaled(**self.cfg)",
    "its length": "float(len(self.cfg))",
}


@pytest.mark.parametrize("read", GONE_THROUGH.values(), ids=GONE_THROUGH)
def test_one_that_is_gone_through_is_compared_whole(read: str) -> None:
    scaled = "\n\ndef scaled(scale, epoch):\n    return scale\n"
    init = "self.cfg = AttrDict(scale=0.5, epoch=0)"
    source = model_source(
        f"return self.head(self.body(x)) * {read}", init=init, prelude=CLASSES + scaled
    )
    made = make_pair_of(source, "lowest", "per-layer")
    _, planned = made.models()
    planned.cfg["epoch"] = 2
    with pytest.raises(ValueError, match=r"cfg is AttrDict \{.*'epoch': 2\}, planned for AttrDict"):
        planned(*made.inputs()[0])


@pytest.mark.parametrize("write", ["self.cfg['last'] = x", "self.cfg.last = x"])
def test_a_tensor_that_is_put_into_one_is_no_secret(write: str) -> None:
    source = model_source(
        f"x = self.body(x)\n{write}\nreturn self.head(x) * self.cfg.scale",
        init="self.cfg = AttrDict(scale=0.5)",
        prelude=CLASSES,
    )
    with pytest.raises(Exception, match=r"cfg\[last\]"):
        make_pair_of(source, "lowest", "per-layer")


def test_the_classes_are_as_they_were(pair: Pair) -> None:
    assert vars(pair.original.AttrDict).keys() <= {*vars(dict), "__getattr__", "__setattr__"} | {
        "__module__",
        "__dict__",
        "__weakref__",
        "__doc__",
        "__firstlineno__",
        "__static_attributes__",
    }
    assert pair.original.AttrDict.get is dict.get


LIBRARY = '''
from collections.abc import Mapping


class Lazy(Mapping):
    """As OmegaConf's: nodes, and flags that the first look at one finds out."""

    def __init__(self, **items):
        self.__dict__["_items"] = {
            key: Lazy(**item) if isinstance(item, dict) else item for key, item in items.items()
        }
        self.__dict__["_flags"] = None

    def __getitem__(self, key):
        if self._flags is None:
            self.__dict__["_flags"] = {"struct": None}
        return self.__dict__["_items"][key]

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)
'''
OF_LIBRARY = """
self.cfg = lazyconf.Lazy(scale=0.5, epoch=0, heads={"gain": 2.0, "seen": 0})
self.table = collections.UserDict(rows=collections.UserList([1.5, 2.5]), all=lazyconf.Lazy(a=1.0))
"""
READS_LIBRARYS = """
x = self.body(x) * self.cfg.scale * self.cfg["heads"].gain + self.table["rows"][1]
x = x * sum(self.table["all"].values()) * self.cfg.get("late", 1.0)
return self.head(x + 1 if "bias" in self.cfg else x)
"""
CHANGED_THERE: dict[str, tuple[Change, str]] = {
    "an attribute": (lambda m: m.cfg._items.update(scale=1), r"cfg\.scale is 1, planned for 0\.5"),
    "in one in it": (
        lambda m: m.cfg.heads._items.update(gain=3),
        r"cfg\[heads\]\.gain is 3, planned for 2\.0",
    ),
    "a key that was not there": (
        lambda m: m.cfg._items.update(bias=1),
        r"cfg\[bias\] is 1, planned for not set",
    ),
    "an element": (
        lambda m: m.table["rows"].__setitem__(1, 3),
        r"table\[rows\]\[1\] is 3, planned for 2\.5",
    ),
    "of all": (
        lambda m: m.table["all"]._items.update(a=2),
        r"table\[all\]\[a\] is 2, planned for 1\.0",
    ),
    "one more of all": (
        lambda m: m.table["all"]._items.update(b=2),
        r"table\[all\]\.__len__\(\) is 2, planned for 1",
    ),
}


@pytest.fixture(scope="module")
def librarys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("there") / "site-packages"
    folder.mkdir()
    (folder / "lazyconf.py").write_text(LIBRARY, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        text = model_source(
            READS_LIBRARYS, init=OF_LIBRARY, prelude="import collections\n\nimport lazyconf"
        )
        yield make_pair_of(text, "lowest", "per-layer")
    sys.modules.pop("lazyconf", None)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(("change", "told"), CHANGED_THERE.values(), ids=CHANGED_THERE)
def test_what_a_librarys_container_is_asked_for_is_named(
    librarys: Pair, change: Change, told: str, *, later: bool
) -> None:
    """How it finds that out is its own: OmegaConf's flags made a planned model refuse itself."""
    assert "_items" not in librarys.text.partition("ASSUMED")[2].partition("HOOKS")[0]
    (args, _), (_, model) = librarys.inputs(), librarys.models()
    if later:
        model(*args)
    change(model)
    with pytest.raises(ValueError, match=told):
        model(*args)


def test_what_a_librarys_container_is_not_asked_for_may_change(librarys: Pair) -> None:
    assert_right(librarys)
    (args, _), (_, model) = librarys.inputs(), librarys.models()
    model.cfg._items.update(epoch=3, run="b")
    model.cfg.heads._items.update(seen=1)
    model(*args)
