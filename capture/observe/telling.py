"""Objects that tell which attributes they are asked for: through their classes, for a while.

Those of classes derived from `dict` (configs, mostly) tell of their items as well, and so do a
library's own mappings and sequences (OmegaConf's): of what they do for it among themselves nothing.
"""

from __future__ import annotations

import contextlib
import functools
import os
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from remat_gen.capture.observe.assumed import NOT_SET
from remat_gen.capture.process.libraries import is_of_library

Asked = Callable[[Any, str, Any, Any], Any]
_KEYED = "__getitem__ get __contains__".split()
_WHOLE = "__iter__ __len__ __reversed__ __eq__ __ne__ __or__ __ror__ __repr__".split()
_WHOLE += "keys values items copy pop popitem update setdefault".split()
_WRITES = "__setitem__", "__setattr__"


class Telling:
    """Calls `asked` with an object, its path, an attribute's name and value, for what `paths` has.

    What it returns is what the attribute is. Of dicts `item` is called so with keys, and `whole`
    with a dict and its path where all that is in it may be read. `undo` puts the classes back.
    """

    def __init__(self, asked: Asked, item: Asked, whole: Callable[[Any, str], None]) -> None:
        self._asked, self._item, self._whole = asked, item, whole
        self.paths: dict[int, str] = {}  # by identity
        self.undo = ExitStack()
        self._inside = 0  # a library's container

    def listen(self, kind: type) -> None:
        """Let a class tell which attributes its objects are asked for."""
        for hook in ("__getattribute__", "__getattr__"):
            plain = getattr(kind, hook, None)
            if plain is None or hasattr(plain, "tells"):
                continue  # there is none, or that of a base tells
            ask = self._from_inside(plain) if is_librarys_container(kind) else plain
            if not self._put(kind, hook, self._telling(ask, last=hook == "__getattr__")):
                return

    def _put(self, kind: type, name: str, function: Any) -> bool:
        """Put a function into a class, to be put back; not where the class is C's: False."""
        own = vars(kind).get(name)
        try:
            setattr(kind, name, function)
        except TypeError:
            return False
        undo = (delattr, kind, name) if own is None else (setattr, kind, name, own)
        self.undo.callback(*undo)
        return True

    def listen_to_items(self, kind: type[dict[Any, Any]]) -> bool:
        """Let a class of dicts tell which items are asked for; not one that is C's: False."""
        for name in (*_KEYED, *_WHOLE, *_WRITES):
            plain = getattr(kind, name)
            if hasattr(plain, "tells") or plain is object.__setattr__:
                continue  # that of a base tells; attributes that are no items
            if not self._put(kind, name, self._telling_item(name, plain)):
                return False
        return True

    def listen_to_container(self, kind: type) -> bool:
        """Let a library's mapping or sequence tell what it is asked for; not C's: False."""
        for name in (*_KEYED, *_WHOLE):
            plain = getattr(kind, name, None)
            if plain is None or hasattr(plain, "tells") or plain is getattr(object, name, None):
                continue
            if not self._put(kind, name, self._telling_outside(plain, keyed=name in _KEYED)):
                return False
        self.listen(kind)
        return True

    def _telling_outside(self, plain: Any, *, keyed: bool) -> Any:
        inside = self._from_inside(plain)

        @functools.wraps(plain)
        def ask(owner: Any, *args: Any) -> Any:
            path = None if self._inside else self.paths.get(id(owner))
            if path is not None and keyed:
                self._item(owner, path, args[0], self.item_of(owner, args[0]))
            elif path is not None:
                self._whole(owner, path)
            return inside(owner, *args)

        ask.tells = True  # type: ignore[attr-defined]
        return ask

    def _from_inside(self, plain: Any) -> Any:
        """Return a function that tells nothing of what it asks for."""

        @functools.wraps(plain)
        def from_inside(*args: Any) -> Any:
            with self._untold():
                return plain(*args)

        return from_inside

    @contextlib.contextmanager
    def _untold(self) -> Iterator[None]:
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    def item_of(self, container: Any, key: Any) -> Any:
        """Return an item of a library's container, which may refuse to say it."""
        with self._untold(), contextlib.suppress(Exception):
            return container[key]
        return NOT_SET

    def keys_of(self, container: Any) -> list[Any]:
        """Return the keys of a library's mapping, or the indices of a sequence."""
        with self._untold():
            return [*container] if isinstance(container, Mapping) else [*range(len(container))]

    def _telling_item(self, name: str, plain: Any) -> Any:
        def ask_whole(owner: Any, *args: Any) -> Any:
            path = self.paths.get(id(owner))
            if path is not None:
                self._whole(owner, path)
            return plain(owner, *args)

        def ask_item(owner: Any, key: Any, *default: Any) -> Any:
            path = self.paths.get(id(owner))
            if path is None:
                return plain(owner, key, *default)
            stands = self._item(owner, path, key, dict.get(owner, key, NOT_SET))
            value = plain(owner, key, *default)
            return stands if value is dict.get(owner, key, NOT_SET) else value

        def write_item(owner: Any, key: Any, value: Any) -> None:
            path = self.paths.get(id(owner))
            if path is not None and isinstance(value, torch.Tensor):  # a step keeps it: a change
                self._item(owner, path, key, dict.get(owner, key, NOT_SET))
            plain(owner, key, value)

        said = ask_item if name in _KEYED else write_item if name in _WRITES else ask_whole
        ask = functools.wraps(plain)(said)
        ask.tells = True  # type: ignore[attr-defined]
        return ask

    def listen_to_file(self, file: Any) -> None:
        """Let an imported file tell: by a class of its own."""
        kind = type(file)
        if kind is types.ModuleType:
            file.__class__ = type("File", (kind,), {})
            self.undo.callback(setattr, file, "__class__", kind)
        self.listen(type(file))

    def _telling(self, plain: Any, *, last: bool) -> Any:
        @functools.wraps(plain)
        def ask_and_tell(owner: Any, name: str) -> Any:
            path = None if self._inside else self.paths.get(id(owner))
            try:
                value = plain(owner, name)
            except AttributeError:
                if path is not None and (last or not hasattr(type(owner), "__getattr__")):
                    self._asked(owner, path, name, NOT_SET)
                raise
            return value if path is None else self._asked(owner, path, name, value)

        ask_and_tell.tells = True  # type: ignore[attr-defined]
        return ask_and_tell


def is_librarys_container(kind: type) -> bool:
    """Tell whether a class is a library's mapping or sequence, and none of Python's own kinds."""
    plain = dict, list, tuple, str, bytes, range, torch.Tensor, torch.nn.Module, type(os.environ)
    is_container = issubclass(kind, Mapping | Sequence) and not issubclass(kind, plain)
    return is_container and is_of_library(kind)
